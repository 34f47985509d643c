#include "model/json/json_value.h"

#include <limits>
#include <type_traits>
#include <utility>

#include "base/check.h"

namespace headrace {

namespace {

template <class T>
std::unique_ptr<T> boxed(T content) {
  return std::make_unique<T>(std::move(content));
}

}  // namespace

JsonValue::JsonValue() noexcept = default;
JsonValue::JsonValue(bool value) noexcept : value_(value) {}
JsonValue::JsonValue(int32_t value) noexcept : value_(int64_t{value}) {}
JsonValue::JsonValue(int64_t value) noexcept : value_(value) {}
JsonValue::JsonValue(uint64_t value) noexcept : value_(value) {}
JsonValue::JsonValue(double value) noexcept : value_(value) {}
JsonValue::JsonValue(const char* text) : value_(boxed(std::string(text))) {}
JsonValue::JsonValue(std::string text) : value_(boxed(std::move(text))) {}
JsonValue::JsonValue(Array values) : value_(boxed(std::move(values))) {}
JsonValue::JsonValue(Object members) : value_(boxed(std::move(members))) {}

JsonValue::JsonValue(const JsonValue& other) {
  std::visit(
      [this](const auto& content) {
        using Content = std::decay_t<decltype(content)>;
        if constexpr (std::is_copy_constructible_v<Content>) {
          value_ = content;
        } else {
          value_ = boxed(*content);
        }
      },
      other.value_);
}

JsonValue::JsonValue(JsonValue&& other) noexcept : value_(std::exchange(other.value_, {})) {}

JsonValue& JsonValue::operator=(JsonValue other) noexcept {
  value_.swap(other.value_);
  return *this;
}

JsonValue::~JsonValue() = default;

bool JsonValue::is_null() const noexcept { return std::holds_alternative<std::monostate>(value_); }
bool JsonValue::is_boolean() const noexcept { return std::holds_alternative<bool>(value_); }
bool JsonValue::is_number() const noexcept {
  return is_whole() || std::holds_alternative<double>(value_);
}
bool JsonValue::is_whole() const noexcept {
  return is_unsigned() || std::holds_alternative<int64_t>(value_);
}
bool JsonValue::is_unsigned() const noexcept { return std::holds_alternative<uint64_t>(value_); }
bool JsonValue::is_string() const noexcept {
  return std::holds_alternative<std::unique_ptr<std::string>>(value_);
}
bool JsonValue::is_array() const noexcept {
  return std::holds_alternative<std::unique_ptr<Array>>(value_);
}
bool JsonValue::is_object() const noexcept {
  return std::holds_alternative<std::unique_ptr<Object>>(value_);
}

bool JsonValue::boolean() const {
  HEADRACE_CHECK(is_boolean());
  return std::get<bool>(value_);
}

double JsonValue::number() const {
  HEADRACE_CHECK(is_number());
  if (const double* real = std::get_if<double>(&value_)) return *real;
  if (const int64_t* whole = std::get_if<int64_t>(&value_)) return static_cast<double>(*whole);
  return static_cast<double>(std::get<uint64_t>(value_));
}

int64_t JsonValue::integer() const {
  HEADRACE_CHECK(is_whole());
  if (const int64_t* whole = std::get_if<int64_t>(&value_)) return *whole;
  const uint64_t value = std::get<uint64_t>(value_);
  HEADRACE_CHECK(value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()), value);
  return static_cast<int64_t>(value);
}

uint64_t JsonValue::unsigned_integer() const {
  HEADRACE_CHECK(is_unsigned());
  return std::get<uint64_t>(value_);
}

const std::string& JsonValue::text() const {
  HEADRACE_CHECK(is_string());
  return *std::get<std::unique_ptr<std::string>>(value_);
}

const JsonValue::Array& JsonValue::array() const {
  HEADRACE_CHECK(is_array());
  return *std::get<std::unique_ptr<Array>>(value_);
}

const JsonValue::Object& JsonValue::object() const {
  HEADRACE_CHECK(is_object());
  return *std::get<std::unique_ptr<Object>>(value_);
}

JsonValue::Array& JsonValue::array() { return const_cast<Array&>(std::as_const(*this).array()); }

JsonValue::Object& JsonValue::object() {
  return const_cast<Object&>(std::as_const(*this).object());
}

const JsonValue* JsonValue::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  const auto found = object().find(key);
  return found == object().end() ? nullptr : &found->second;
}

size_t JsonValue::size() const noexcept {
  if (is_null()) return 0;
  if (is_array()) return std::get<std::unique_ptr<Array>>(value_)->size();
  if (is_object()) return std::get<std::unique_ptr<Object>>(value_)->size();
  return 1;
}

bool operator==(const JsonValue& a, const JsonValue& b) {
  if (a.is_whole() && b.is_whole()) {
    // Where only one is signed, their values may be equal if it isn't negative.
    const auto negative = [](const JsonValue& x) { return !x.is_unsigned() && x.integer() < 0; };
    const auto bits = [](const JsonValue& x) {
      return x.is_unsigned() ? x.unsigned_integer() : static_cast<uint64_t>(x.integer());
    };
    return negative(a) == negative(b) && bits(a) == bits(b);
  }
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.value_.index() != b.value_.index()) return false;
  if (a.is_string()) return a.text() == b.text();
  if (a.is_array()) return a.array() == b.array();
  if (a.is_object()) return a.object() == b.object();
  return a.is_null() || a.boolean() == b.boolean();
}

}  // namespace headrace
