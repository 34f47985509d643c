#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "model/json/json.h"
#include "model/json/json_value.h"

namespace headrace {

/// What config.json may be.
inline constexpr JsonLimits kConfigLimits{};

/// Typed, checked access to the keys of one JSON object. It remembers which keys were read, so
/// that the others can be refused. Every fault is an Error naming file, key and value:
/// kCorruptFile for a value of the wrong type or out of range, kUnsupported for a value that this
/// build cannot honour. REQUIRES: `object` outlives the reader.
class ConfigReader {
 public:
  ConfigReader(const JsonValue& object, std::string origin);

  bool has_key(std::string_view key) const;  ///< even if its value is null
  /// Null if the key is absent or its value is null. Counts as reading the key.
  const JsonValue* find(std::string_view key);

  // An absent key gives `fallback`; so does null where that is said.
  int64_t integer(std::string_view key, int64_t fallback, int64_t min, int64_t max);
  /// null gives nullopt, like an absent key.
  std::optional<int64_t> optional_integer(std::string_view key, int64_t min, int64_t max);
  double number(std::string_view key, double fallback, double min, double max);
  /// null gives nullopt, like an absent key.
  std::optional<double> optional_number(std::string_view key, double min, double max);
  bool flag(std::string_view key, bool fallback);  ///< null gives false, as in Python
  std::string text(std::string_view key, const std::string& fallback);  ///< null: fallback

  /// The only value that this build computes; absent and null are fine too.
  void require(std::string_view key, const JsonValue& only);

  /// Throws Error(kUnsupported) for a key that was not read, that no pattern of `harmless` names
  /// ("fuse_*" stands for all keys with that beginning) and whose value is not neutral (null,
  /// false, 0 or empty).
  void refuse_unknown_keys(std::span<const std::string_view> harmless) const;

  [[noreturn]] void fail_value(std::string_view key, std::string_view expected) const;
  [[noreturn]] void fail_unsupported(std::string_view key, std::string_view why) const;

  const std::string& origin() const noexcept { return origin_; }

 private:
  int64_t checked_integer(std::string_view key, const JsonValue& value, int64_t min,
                          int64_t max) const;
  double checked_number(std::string_view key, const JsonValue& value, double min, double max) const;

  const JsonValue& object_;
  std::string origin_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace headrace
