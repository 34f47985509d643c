#pragma once

// Memory of one template or of one rendering: taken piece by piece, counted, freed all at once.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string_view>
#include <type_traits>
#include <utility>

namespace headrace::text::jinja {

class Arena {
 public:
  explicit Arena(size_t limit) : left_(limit), limit_(limit) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  /// Aligned for pointers and 64-bit numbers. Throws Fault(kLimitExceeded).
  void* allocate(size_t bytes) {
    const size_t whole = (bytes + 7) & ~static_cast<size_t>(7);
    if (bytes > limit_ || whole > static_cast<size_t>(end_ - at_)) [[unlikely]] {
      return allocate_in_new_block(bytes);
    }
    char* const start = at_;
    at_ += whole;
    return start;
  }

  /// Makes the newest piece longer in its place, if there is room.
  bool extend(const char* piece, size_t bytes, size_t wanted) noexcept;

  template <class T, class... Args>
  T* make(Args&&... args) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= 8);
    return new (allocate(sizeof(T))) T(std::forward<Args>(args)...);
  }

  /// Of default values.
  template <class T>
  T* array(size_t count) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= 8);
    T* const items = static_cast<T*>(allocate(count > limit_ ? count : count * sizeof(T)));
    for (size_t i = 0; i < count; ++i) {
      new (items + i) T();
    }
    return items;
  }

  std::string_view copy(std::string_view text) {
    char* const to = static_cast<char*>(allocate(text.size()));
    if (!text.empty()) {
      std::memcpy(to, text.data(), text.size());
    }
    return {to, text.size()};
  }

 private:
  struct Block {
    Block* before;
  };
  void* allocate_in_new_block(size_t bytes);

  Block* newest_ = nullptr;
  char* at_ = nullptr;
  char* end_ = nullptr;
  size_t left_;
  size_t limit_;
  size_t next_block_ = 8 << 10;
};

}  // namespace headrace::text::jinja
