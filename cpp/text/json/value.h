#pragma once

// JSON as values that keep the order of keys: the parts of tokenizer files other than vocabularies,
// and what callers pass to chat templates.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace headrace::text::json {

class Value {
 public:
  enum class Kind : uint8_t { kNull, kBool, kInt, kFloat, kString, kList, kObject };
  using List = std::vector<Value>;
  using Member = std::pair<std::string, Value>;
  using Object = std::vector<Member>;  ///< in the text's order; no key twice

  Value() = default;
  explicit Value(bool value) : state_(value) {}
  explicit Value(int64_t value) : state_(value) {}
  explicit Value(double value) : state_(value) {}
  explicit Value(std::string value) : state_(std::move(value)) {}
  explicit Value(List value) : state_(std::move(value)) {}
  explicit Value(Object value) : state_(std::move(value)) {}

  Kind kind() const noexcept { return static_cast<Kind>(state_.index()); }
  bool is_null() const noexcept { return kind() == Kind::kNull; }

  /// Null if it is of another kind.
  const bool* boolean() const noexcept { return std::get_if<bool>(&state_); }
  const int64_t* integer() const noexcept { return std::get_if<int64_t>(&state_); }
  const double* real() const noexcept { return std::get_if<double>(&state_); }
  const std::string* string() const noexcept { return std::get_if<std::string>(&state_); }
  const List* list() const noexcept { return std::get_if<List>(&state_); }
  const Object* object() const noexcept { return std::get_if<Object>(&state_); }

  /// The member of that name; null if this is no object, or has none.
  const Value* find(std::string_view key) const noexcept;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, List, Object> state_;
};

struct Limits {
  size_t max_bytes = 16u << 20;
  int max_depth = 100;
  size_t max_values = 1u << 20;
};

class Scanner;

/// The scanner's next value.
Value read_value(Scanner* scanner);

/// Parses one JSON text, exactly: UTF-8, no comments, no key twice in an object, nothing behind it.
/// Integers beyond int64 become floats. Throws Error(kCorruptFile) that says what is wrong at which
/// byte, and Error(kLimitExceeded).
Value parse(std::string_view text, const Limits& limits = {});

}  // namespace headrace::text::json
