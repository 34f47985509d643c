#pragma once

// What templates compute with: Python's values as far as chat templates meet them. A value is
// small and copied freely; what it points to lives in an arena and doesn't change (namespaces,
// loops and iterators do).

#include <cstdint>
#include <string_view>

namespace headrace::text::jinja {

enum class Kind : uint8_t {
  kMissing,    ///< no value at all: a variable that wasn't set, an argument that wasn't given
  kUndefined,  ///< jinja2's Undefined
  kNone,
  kBool,
  kInt,
  kBigInt,  ///< beyond 64 bits: its digits, to be printed, no more
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kView,  ///< a dict's keys(), values() or items()
  kRange,
  kIterator,  ///< can be gone through once
  kNamespace,
  kMacro,
  kLoop,
  kMethod,    ///< of a value: bound
  kFunction,  ///< a global one
};

struct Builtin;
struct Dict;
struct Iterator;
struct Loop;
struct MacroValue;
struct Method;
struct Range;
struct Undefined;

/// Markup, or a kind of View, or which function.
enum Tag : uint8_t { kPlain = 0, kMarkup = 1, kGroup = 1, kKeys = 0, kValues = 1, kItems = 2 };

struct Value {
  Kind kind = Kind::kMissing;
  uint8_t tag = 0;
  uint32_t size = 0;  ///< of a string in bytes, of a list or tuple in items
  union {
    bool boolean;
    int64_t integer = 0;
    double real;
    const char* chars;
    const Value* items;
    const Dict* dict;
    const Range* range;
    const Undefined* undefined;
    const MacroValue* macro;
    const Method* method;
    const Builtin* function;
    Dict* names;  ///< a namespace's
    Iterator* iterator;
    Loop* loop;
  };

  static Value none() noexcept {
    Value value;
    value.kind = Kind::kNone;
    return value;
  }
  static Value of(bool given) noexcept {
    Value value;
    value.kind = Kind::kBool;
    value.integer = 0;
    value.boolean = given;
    return value;
  }
  static Value of(int64_t given) noexcept {
    Value value;
    value.kind = Kind::kInt;
    value.integer = given;
    return value;
  }
  static Value of(double given) noexcept {
    Value value;
    value.kind = Kind::kFloat;
    value.real = given;
    return value;
  }
  /// The text must live as long as the value.
  static Value of(std::string_view text, uint8_t tag = kPlain) noexcept {
    Value value;
    value.kind = Kind::kString;
    value.tag = tag;
    value.size = static_cast<uint32_t>(text.size());
    value.chars = text.data();
    return value;
  }
  static Value of(const char* text) noexcept { return of(std::string_view(text)); }
  static Value sequence(Kind kind, const Value* items, size_t count) noexcept {
    Value value;
    value.kind = kind;
    value.size = static_cast<uint32_t>(count);
    value.items = items;
    return value;
  }
  static Value of(const Dict* dict) noexcept {
    Value value;
    value.kind = Kind::kDict;
    value.dict = dict;
    return value;
  }

  bool is(Kind other) const noexcept { return kind == other; }
  bool is_missing() const noexcept { return kind == Kind::kMissing; }
  bool is_none() const noexcept { return kind == Kind::kNone; }
  bool is_undefined() const noexcept { return kind == Kind::kUndefined; }
  bool is_string() const noexcept { return kind == Kind::kString; }
  bool is_markup() const noexcept { return kind == Kind::kString && tag == kMarkup; }
  bool is_integral() const noexcept { return kind == Kind::kInt || kind == Kind::kBool; }
  bool is_number() const noexcept { return is_integral() || kind == Kind::kFloat; }
  bool is_sequence() const noexcept { return kind == Kind::kList || kind == Kind::kTuple; }
  /// REQUIRES: a string, or a big integer.
  std::string_view text() const noexcept { return {chars, size}; }
  /// REQUIRES: is_integral().
  int64_t int_value() const noexcept { return kind == Kind::kBool ? boolean : integer; }
};
static_assert(sizeof(Value) == 16);

struct Iterator {
  const Value* items = nullptr;
  uint32_t count = 0;
  uint32_t at = 0;
};

struct Range {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  uint32_t count = 0;
};

struct Undefined {
  Value of;               ///< whose attribute or item it was; missing: a variable
  Value name;             ///< of the variable, attribute or item
  std::string_view hint;  ///< the whole message, if not empty
};

struct Method {
  Value self;
  const Builtin* function = nullptr;
};

}  // namespace headrace::text::jinja
