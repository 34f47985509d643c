#pragma once

// One rendering: its memory, and how much more it may do. No clock: the same template and the
// same variables always end in the same way.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "text/template/values/arena.h"
#include "text/template/values/fault.h"
#include "text/template/values/value.h"

namespace headrace::text::jinja {

/// How deep expressions, blocks and calls may be nested at most.
inline constexpr int kMostLevels = 200;

using Clock = std::function<std::chrono::system_clock::time_point()>;

class Run {
 public:
  Run(size_t memory, uint64_t steps, int depth)
      : arena(memory), steps_left_(steps), depth_left_(depth), max_depth_(depth) {}

  /// One step for each node, and one for each 16 bytes that an operation reads or writes, before
  /// it does. Throws Fault(kLimitExceeded).
  void spend(uint64_t steps) {
    if (steps > steps_left_) [[unlikely]] {
      out_of_steps();
    }
    steps_left_ -= steps;
  }
  void spend_bytes(uint64_t bytes) { spend(bytes / 16 + 1); }

  /// A copy of the text that lives as long as the rendering.
  Value copied(std::string_view text, uint8_t tag = kPlain) {
    spend_bytes(text.size());
    return Value::of(arena.copy(text), tag);
  }

  Arena arena;
  uint32_t line = 1;             ///< where the template is at
  const Clock* clock = nullptr;  ///< what strftime_now asks; null or empty: the system's

 private:
  friend class Deeper;
  [[noreturn]] static void out_of_steps();
  [[noreturn]] void too_deep() const;

  uint64_t steps_left_;
  int depth_left_;
  int max_depth_;
};

/// Counts how deep calls are nested while it lives.
class Deeper {
 public:
  explicit Deeper(Run& run) : run_(run) {
    if (run.depth_left_ <= 0) [[unlikely]] {
      run.too_deep();
    }
    --run.depth_left_;
  }
  ~Deeper() { ++run_.depth_left_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Run& run_;
};

/// A text that grows in the arena.
class Builder {
 public:
  explicit Builder(Run& run) : run_(run) {}

  void append(std::string_view text) {
    if (text.size() > capacity_ - size_) [[unlikely]] {
      grow(text.size());
    }
    if (!text.empty()) {
      std::memcpy(data_ + size_, text.data(), text.size());
      size_ += text.size();
    }
  }
  void append(char byte) { append(std::string_view(&byte, 1)); }
  void append_char(char32_t character);
  void append_times(std::string_view text, uint64_t times);
  void reserve(size_t bytes) {
    if (bytes > capacity_ - size_) {
      grow(bytes);
    }
  }

  std::string_view view() const noexcept { return {data_, size_}; }
  Value value(uint8_t tag = kPlain) const noexcept { return Value::of(view(), tag); }

 private:
  void grow(size_t by);

  Run& run_;
  char* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace headrace::text::jinja
