#pragma once

// Members of objects that have to be of a kind. Each throws Error(kCorruptFile), which names the
// member, for one of another kind.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/json/value.h"

namespace headrace::text::json {

/// Null if it is missing or null.
const Value* given(const Value& object, std::string_view name) noexcept;

const Value::List& list_of(const Value& object, std::string_view name);
const std::string& string_of(const Value& object, std::string_view name);
bool bool_of(const Value& object, std::string_view name);
/// What an id may be.
int32_t id_of(const Value& value, std::string_view name);

/// The value for one that is missing or null.
bool bool_of(const Value& object, std::string_view name, bool otherwise);
std::string string_of(const Value& object, std::string_view name, std::string_view otherwise);

}  // namespace headrace::text::json
