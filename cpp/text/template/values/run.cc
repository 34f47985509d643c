#include "text/template/values/run.h"

#include <algorithm>

namespace headrace::text::jinja {

void Run::out_of_steps() { fail_limit({"it takes more steps than allowed"}); }

void Run::too_deep() const {
  fail_limit({"it recurses too deeply: more than ", std::to_string(max_depth_), " levels"});
}

void Builder::append_char(char32_t character) {
  std::string bytes;
  append_utf8(character, &bytes);
  append(bytes);
}

void Builder::append_times(std::string_view text, uint64_t times) {
  if (text.empty() || times == 0) {
    return;
  }
  // So much can't be had, and the product may not fit.
  constexpr uint64_t kHuge = 1ull << 40;
  const uint64_t bytes = times > kHuge / text.size() ? kHuge : text.size() * times;
  run_.spend_bytes(bytes);
  reserve(bytes);
  char* const start = data_ + size_;
  size_ += bytes;
  std::memcpy(start, text.data(), text.size());
  for (uint64_t done = text.size(); done < bytes; done *= 2) {
    std::memcpy(start + done, start, std::min(done, bytes - done));
  }
}

void Builder::grow(size_t by) {
  const size_t least = size_ + by;
  run_.spend_bytes(least - capacity_);
  const size_t wanted = std::max({least, capacity_ * 2, static_cast<size_t>(32)});
  if (data_ != nullptr && run_.arena.extend(data_, capacity_, wanted)) {
    capacity_ = wanted;
    return;
  }
  char* const larger = static_cast<char*>(run_.arena.allocate(wanted));
  if (size_ > 0) {
    std::memcpy(larger, data_, size_);
  }
  data_ = larger;
  capacity_ = wanted;
}

}  // namespace headrace::text::jinja
