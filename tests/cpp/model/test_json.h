#pragma once

// JSON in tests, by a library that the engine's own reader is no part of.

#include <nlohmann/json.hpp>

#include "model/json/json.h"

namespace headrace {

using Json = nlohmann::json;

/// `object` as the engine reads it.
inline JsonValue json_value(const Json& object) {
  return parse_json_object(object.dump(), "a test's JSON", JsonLimits{});
}

}  // namespace headrace
