#pragma once

// A JSON value that somebody else has checked and parsed (model/json/json.h). The parser's library
// stays out of this header: every unit that reads a config includes it.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace headrace {

/// null, a boolean, a number, a string, an array or an object. A number is kept as it was written:
/// a whole number >= 0 ("unsigned"), another whole number, or a float.
class JsonValue {
 public:
  using Array = std::vector<JsonValue>;
  using Object = std::map<std::string, JsonValue, std::less<>>;

  JsonValue() noexcept;
  JsonValue(bool value) noexcept;
  JsonValue(int32_t value) noexcept;
  JsonValue(int64_t value) noexcept;
  JsonValue(uint64_t value) noexcept;
  JsonValue(double value) noexcept;
  JsonValue(const char* text);
  JsonValue(std::string text);
  JsonValue(Array values);
  JsonValue(Object members);
  JsonValue(const JsonValue& other);
  JsonValue(JsonValue&& other) noexcept;
  JsonValue& operator=(JsonValue other) noexcept;
  ~JsonValue();

  bool is_null() const noexcept;
  bool is_boolean() const noexcept;
  bool is_number() const noexcept;
  bool is_whole() const noexcept;     ///< written without fraction and exponent
  bool is_unsigned() const noexcept;  ///< is_whole(), and without a sign
  bool is_string() const noexcept;
  bool is_array() const noexcept;
  bool is_object() const noexcept;

  // The content. REQUIRES (InternalError): it is of that kind.
  bool boolean() const;
  double number() const;              ///< of every kind of number
  int64_t integer() const;            ///< is_whole(), and it fits
  uint64_t unsigned_integer() const;  ///< is_unsigned()
  const std::string& text() const;
  const Array& array() const;
  const Object& object() const;
  Array& array();
  Object& object();

  /// The member of that name; null if there is none, or if this is no object.
  const JsonValue* find(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }

  /// Values in an array or object; 0 for null, 1 for everything else.
  size_t size() const noexcept;
  bool empty() const noexcept { return size() == 0; }

  /// Numbers are equal if their values are, however they were written.
  friend bool operator==(const JsonValue& a, const JsonValue& b);

 private:
  // Strings, arrays and objects lie apart, so that a list of a million numbers stays small.
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::unique_ptr<std::string>,
               std::unique_ptr<Array>, std::unique_ptr<Object>>
      value_;
};

}  // namespace headrace
