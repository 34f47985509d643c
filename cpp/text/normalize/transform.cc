#include "text/normalize/transform.h"

#include <string>
#include <utility>

#include "text/unicode/utf8.h"

namespace headrace::text {

void Transform::keep(size_t begin, size_t end) {
  if (begin == end) {
    return;
  }
  flush();
  if (begin == used_) {
    // All but the last character, which may be followed by `shrink`.
    size_t last = end - 1;
    while (utf8_continues(old_[last])) {
      --last;
    }
    writer_.keep(begin, last);
    used_ = begin = last;
  }
  while (begin < end) {
    push(next_char(old_, &begin), 0);
  }
}

void Transform::push(char32_t value, int32_t change) {
  flush();
  last_ = value;
  change_ = change;
  waiting_ = true;
}

void Transform::shrink(int32_t count) { change_ -= count; }

void Transform::flush() {
  if (!waiting_) {
    return;
  }
  waiting_ = false;
  std::string bytes;  // short enough to need no memory of its own
  append_utf8(last_, &bytes);
  if (change_ > 0 || used_ == old_.size()) {
    writer_.put(bytes, used_, used_);
    return;
  }
  writer_.put_as(bytes, used_);
  for (; change_ <= 0 && used_ < old_.size(); ++change_) {
    used_ += utf8_size(old_[used_]);
  }
}

void Transform::finish() {
  flush();
  text_->replace_by(std::move(writer_));
}

}  // namespace headrace::text
