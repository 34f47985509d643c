#pragma once

// Python's view of values: truth, equality, order, length, types, going through them.

#include <optional>
#include <string_view>

#include "text/template/values/run.h"
#include "text/template/values/value.h"

namespace headrace::text::jinja {

/// As Python names the type: 'str', 'NoneType'.
std::string_view type_name(const Value& value) noexcept;

bool truth(Run& run, const Value& value);
bool equal(Run& run, const Value& left, const Value& right);
/// left < right. Throws Fault if Python has no order for them; `sign`: how the template wrote it.
bool less(Run& run, const Value& left, const Value& right, std::string_view sign);
/// x in container.
bool contains(Run& run, const Value& container, const Value& item);
/// None if it has none.
std::optional<int64_t> length_of(Run& run, const Value& value);

/// Fails as every use of an undefined value does.
[[noreturn]] void fail_undefined(Run& run, const Value& value);

/// Goes through what a value has: items, keys, characters.
class Cursor {
 public:
  /// Throws Fault if it can't be gone through.
  Cursor(Run& run, const Value& value);
  static bool can_iterate(const Value& value) noexcept;

  bool next(Run& run, Value* item);
  /// At least so many follow.
  size_t expected() const noexcept;

 private:
  Value over_;
  uint32_t at_ = 0;
};

/// All of them.
struct Items {
  const Value* items = nullptr;
  uint32_t count = 0;
};
Items all_items(Run& run, const Value& value);

/// Values that become a list.
class ListBuilder {
 public:
  explicit ListBuilder(Run& run) : run_(&run) {}
  void add(const Value& value) {
    if (count_ == capacity_) {
      grow();
    }
    items_[count_++] = value;
  }
  uint32_t count() const noexcept { return count_; }
  Value* items() noexcept { return items_; }
  Value value(Kind kind = Kind::kList) const noexcept {
    return Value::sequence(kind, items_, count_);
  }
  Value iterator();

 private:
  void grow();

  Run* run_;
  Value* items_ = nullptr;
  uint32_t count_ = 0;
  uint32_t capacity_ = 0;
};

}  // namespace headrace::text::jinja
