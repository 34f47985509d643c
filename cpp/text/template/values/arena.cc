#include "text/template/values/arena.h"

#include <algorithm>
#include <cstdlib>

#include "text/template/values/fault.h"

namespace headrace::text::jinja {
namespace {

// A block for each piece lets AddressSanitizer see what leaves its piece.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kOwnBlocks = true;
#else
constexpr bool kOwnBlocks = false;
#endif
constexpr size_t kLargestBlock = 1 << 20;

}  // namespace

Arena::~Arena() {
  while (newest_ != nullptr) {
    Block* const before = newest_->before;
    std::free(newest_);
    newest_ = before;
  }
}

void* Arena::allocate_in_new_block(size_t bytes) {
  if (bytes > left_) {
    fail_limit({"it needs more than the ", std::to_string(limit_), " bytes of memory allowed"});
  }
  const size_t whole = (bytes + 7) & ~static_cast<size_t>(7);
  const size_t size = kOwnBlocks ? whole : std::max(std::min(next_block_, left_), whole);
  void* const memory = std::malloc(sizeof(Block) + size);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  newest_ = new (memory) Block{newest_};
  left_ -= std::min(left_, size);
  next_block_ = std::min(next_block_ * 2, kLargestBlock);
  char* const start = reinterpret_cast<char*>(newest_ + 1);
  // What was left of the block before is given up, unless the new one has less.
  if (static_cast<size_t>(end_ - at_) <= size - whole) {
    at_ = start + whole;
    end_ = start + size;
  }
  return start;
}

bool Arena::extend(const char* piece, size_t bytes, size_t wanted) noexcept {
  const size_t old_whole = (bytes + 7) & ~static_cast<size_t>(7);
  const size_t new_whole = (wanted + 7) & ~static_cast<size_t>(7);
  if (piece + old_whole != at_ || new_whole - old_whole > static_cast<size_t>(end_ - at_)) {
    return false;
  }
  at_ += new_whole - old_whole;
  return true;
}

}  // namespace headrace::text::jinja
