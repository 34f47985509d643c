#include "text/json/fields.h"

#include "base/check.h"

namespace headrace::text::json {
namespace {

[[noreturn]] void fail_field(std::string_view name, const char* expected) {
  throw_error(ErrorCode::kCorruptFile, "\"", name, "\" must be ", expected);
}

template <class T>
const T& required(const T* value, std::string_view name, const char* expected) {
  if (value == nullptr) fail_field(name, expected);
  return *value;
}

const Value& member(const Value& object, std::string_view name) {
  static const Value none;
  const Value* found = object.find(name);
  return found == nullptr ? none : *found;
}

}  // namespace

const Value* given(const Value& object, std::string_view name) noexcept {
  const Value* found = object.find(name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

const Value::List& list_of(const Value& object, std::string_view name) {
  return required(member(object, name).list(), name, "a list");
}

const std::string& string_of(const Value& object, std::string_view name) {
  return required(member(object, name).string(), name, "a string");
}

bool bool_of(const Value& object, std::string_view name) {
  return required(member(object, name).boolean(), name, "true or false");
}

int32_t id_of(const Value& value, std::string_view name) {
  const int64_t id = required(value.integer(), name, "an id");
  if (id < 0 || id > INT32_MAX) fail_field(name, "an id");
  return static_cast<int32_t>(id);
}

bool bool_of(const Value& object, std::string_view name, bool otherwise) {
  return given(object, name) == nullptr ? otherwise : bool_of(object, name);
}

std::string string_of(const Value& object, std::string_view name, std::string_view otherwise) {
  return given(object, name) == nullptr ? std::string(otherwise) : string_of(object, name);
}

}  // namespace headrace::text::json
