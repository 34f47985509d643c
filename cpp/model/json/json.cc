#include "model/json/json.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/check.h"

namespace headrace {

namespace {

using Nlohmann = nlohmann::json;

constexpr size_t kShownBytes = 120;

/// Builds the value as the parser meets its parts, and throws where a limit or uniqueness of keys
/// is broken. Each event takes the time of one insertion, whatever came before.
class Builder {
 public:
  Builder(const std::string& origin, const JsonLimits& limits, JsonValue& root)
      : origin_(origin), limits_(limits), root_(root) {}

  bool null() { return put({}); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(int64_t value) { return put(value); }
  bool number_unsigned(uint64_t value) { return put(value); }
  bool number_float(double value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(Nlohmann::binary_t&) { return false; }  // no JSON text holds any
  bool start_object(size_t) { return open(JsonValue::Object()); }
  bool start_array(size_t) { return open(JsonValue::Array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    count();
    const auto [place, is_new] = open_.back()->object().try_emplace(name);
    if (!is_new) {
      throw_error(ErrorCode::kCorruptFile, origin_, " has the key ", in_quotes(name), " twice.");
    }
    member_ = &place->second;
    return true;
  }

  bool parse_error(size_t byte, const std::string&, const Nlohmann::exception& error) {
    constexpr int kFirstOutOfRange = 400;
    if (error.id >= kFirstOutOfRange) {
      throw_error(ErrorCode::kCorruptFile, origin_, " holds a number that is out of range.");
    }
    throw_error(ErrorCode::kCorruptFile, origin_, " is not valid JSON at byte ", byte, ".");
  }

 private:
  void count() {
    if (++values_ <= limits_.max_values) return;
    throw_error(ErrorCode::kCorruptFile, origin_, " holds more than ", limits_.max_values,
                " values.");
  }

  /// Where the next value belongs.
  JsonValue& place() {
    count();
    if (open_.empty()) return root_;
    if (member_ != nullptr) return *std::exchange(member_, nullptr);
    return open_.back()->array().emplace_back();
  }

  bool put(JsonValue value) {
    place() = std::move(value);
    return true;
  }

  bool open(JsonValue empty) {
    if (open_.size() >= static_cast<size_t>(limits_.max_depth)) {
      throw_error(ErrorCode::kCorruptFile, origin_, " nests deeper than ", limits_.max_depth,
                  " levels.");
    }
    JsonValue& here = place();
    here = std::move(empty);
    open_.push_back(&here);
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& origin_;
  const JsonLimits& limits_;
  JsonValue& root_;
  std::vector<JsonValue*> open_;  // objects and arrays: only the last one grows, so that none moves
  JsonValue* member_ = nullptr;   // that the last key is for
  size_t values_ = 0;
};

Nlohmann to_nlohmann(const JsonValue& value) {
  if (value.is_boolean()) return value.boolean();
  if (value.is_unsigned()) return value.unsigned_integer();
  if (value.is_whole()) return value.integer();
  if (value.is_number()) return value.number();
  if (value.is_string()) return value.text();
  if (value.is_array()) {
    Nlohmann out = Nlohmann::array();
    for (const JsonValue& entry : value.array()) out.push_back(to_nlohmann(entry));
    return out;
  }
  if (value.is_object()) {
    Nlohmann out = Nlohmann::object();
    for (const auto& [key, member] : value.object()) out.emplace(key, to_nlohmann(member));
    return out;
  }
  return {};
}

}  // namespace

JsonValue parse_json(std::string_view text, const std::string& origin, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    throw_error(ErrorCode::kCorruptFile, origin, " has ", text.size(), " bytes of JSON; at most ",
                limits.max_bytes, " are accepted.");
  }
  JsonValue root;
  Builder builder(origin, limits, root);
  Nlohmann::sax_parse(text.begin(), text.end(), &builder);
  return root;
}

JsonValue parse_json_object(std::string_view text, const std::string& origin,
                            const JsonLimits& limits) {
  JsonValue root = parse_json(text, origin, limits);
  if (!root.is_object()) {
    throw_error(ErrorCode::kCorruptFile, origin, " is JSON but not an object.");
  }
  return root;
}

std::string json_text(const JsonValue& value) { return to_nlohmann(value).dump(); }

std::string ascii_json_text(const JsonValue& value) {
  return to_nlohmann(value).dump(-1, ' ', true, Nlohmann::error_handler_t::replace);
}

std::string in_quotes(std::string_view text) {
  return shown(JsonValue(std::string(text.substr(0, kShownBytes))));
}

std::string shown(const JsonValue& value) {
  std::string text = ascii_json_text(value);
  if (text.size() > 2 * kShownBytes) text = text.substr(0, kShownBytes) + "...";
  return text;
}

}  // namespace headrace
