#include "model/config/config_reader.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace headrace {

namespace {

bool matches(std::string_view pattern, std::string_view key) {
  if (!pattern.ends_with('*')) return pattern == key;
  return key.starts_with(pattern.substr(0, pattern.size() - 1));
}

bool is_neutral(const JsonValue& value) {
  if (value.is_boolean()) return !value.boolean();
  if (value.is_number()) return value.number() == 0.0;
  if (value.is_string()) return value.text().empty();
  return value.empty();
}

}  // namespace

ConfigReader::ConfigReader(const JsonValue& object, std::string origin)
    : object_(object), origin_(std::move(origin)) {}

bool ConfigReader::has_key(std::string_view key) const { return object_.contains(key); }

const JsonValue* ConfigReader::find(std::string_view key) {
  read_.emplace(key);
  const JsonValue* found = object_.find(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

int64_t ConfigReader::integer(std::string_view key, int64_t fallback, int64_t min, int64_t max) {
  const JsonValue* value = find(key);
  if (value == nullptr && !has_key(key)) return fallback;
  if (value == nullptr) fail_value(key, "must be a whole number");
  return checked_integer(key, *value, min, max);
}

std::optional<int64_t> ConfigReader::optional_integer(std::string_view key, int64_t min,
                                                      int64_t max) {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  return checked_integer(key, *value, min, max);
}

double ConfigReader::number(std::string_view key, double fallback, double min, double max) {
  const JsonValue* value = find(key);
  if (value == nullptr && !has_key(key)) return fallback;
  if (value == nullptr) fail_value(key, "must be a number");
  return checked_number(key, *value, min, max);
}

std::optional<double> ConfigReader::optional_number(std::string_view key, double min, double max) {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  return checked_number(key, *value, min, max);
}

bool ConfigReader::flag(std::string_view key, bool fallback) {
  const JsonValue* value = find(key);
  if (value == nullptr) return !has_key(key) && fallback;
  if (!value->is_boolean()) fail_value(key, "must be true or false");
  return value->boolean();
}

std::string ConfigReader::text(std::string_view key, const std::string& fallback) {
  const JsonValue* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_string()) fail_value(key, "must be a string");
  return value->text();
}

void ConfigReader::require(std::string_view key, const JsonValue& only) {
  const JsonValue* value = find(key);
  if (value != nullptr && *value != only) {
    fail_unsupported(key, str_cat("only ", shown(only), " is supported"));
  }
}

void ConfigReader::refuse_unknown_keys(std::span<const std::string_view> harmless) const {
  for (const auto& [key, value] : object_.object()) {
    const std::string& name = key;
    const bool known = std::any_of(harmless.begin(), harmless.end(), [&](std::string_view pattern) {
      return matches(pattern, name);
    });
    if (known || read_.contains(name) || is_neutral(value)) continue;
    fail_unsupported(name,
                     "this build does not know what it means for the computation. If it means "
                     "nothing, remove it from the file");
  }
}

void ConfigReader::fail_value(std::string_view key, std::string_view expected) const {
  const JsonValue* found = object_.find(key);
  throw_error(ErrorCode::kCorruptFile, origin_, ": ", in_quotes(key), " is ",
              found == nullptr ? "missing" : shown(*found), "; it ", expected, ".");
}

void ConfigReader::fail_unsupported(std::string_view key, std::string_view why) const {
  const JsonValue* found = object_.find(key);
  throw_error(ErrorCode::kUnsupported, origin_, ": ", in_quotes(key), " is ",
              found == nullptr ? "missing" : shown(*found), ": ", why, ".");
}

int64_t ConfigReader::checked_integer(std::string_view key, const JsonValue& value, int64_t min,
                                      int64_t max) const {
  // Doubles hold every bound used here exactly, and some published files write 8192.0.
  const double wide = value.is_number() ? value.number() : std::nan("");
  if (!(wide >= static_cast<double>(min) && wide <= static_cast<double>(max)) ||
      wide != std::floor(wide)) {
    fail_value(key, str_cat("must be a whole number from ", min, " to ", max));
  }
  return static_cast<int64_t>(wide);
}

double ConfigReader::checked_number(std::string_view key, const JsonValue& value, double min,
                                    double max) const {
  const double wide = value.is_number() ? value.number() : std::nan("");
  if (!(wide >= min && wide <= max)) {
    fail_value(key, str_cat("must be a number from ", min, " to ", max));
  }
  return wide;
}

}  // namespace headrace
