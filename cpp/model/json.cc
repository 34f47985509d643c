#include "model/json.h"

#include <unordered_set>
#include <vector>

#include "base/check.h"

namespace headrace {

namespace {

constexpr size_t kShownBytes = 120;

/// Sees every event of a parse and throws where a limit or uniqueness of keys is broken.
class ParseGuard {
 public:
  ParseGuard(const std::string& origin, const JsonLimits& limits)
      : origin_(origin), limits_(limits) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (depth >= limits_.max_depth) {
        throw_error(ErrorCode::kCorruptFile, origin_, " nests deeper than ", limits_.max_depth,
                    " levels.");
      }
    }
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) {
        throw_error(ErrorCode::kCorruptFile, origin_, " has the key ", in_quotes(key), " twice.");
      }
    }
    if (++events_ > limits_.max_values) {
      throw_error(ErrorCode::kCorruptFile, origin_, " holds more than ", limits_.max_values,
                  " values.");
    }
    return true;
  }

 private:
  const std::string& origin_;
  const JsonLimits& limits_;
  std::vector<std::unordered_set<std::string>> keys_;  // of the open objects
  size_t events_ = 0;
};

}  // namespace

Json parse_json_object(std::string_view text, const std::string& origin, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    throw_error(ErrorCode::kCorruptFile, origin, " has ", text.size(), " bytes of JSON; at most ",
                limits.max_bytes, " are accepted.");
  }
  ParseGuard guard(origin, limits);
  const auto watch = [&guard](int depth, Json::parse_event_t event, Json& parsed) {
    return guard(depth, event, parsed);
  };
  Json root;
  try {
    root = Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::parse_error& e) {
    throw_error(ErrorCode::kCorruptFile, origin, " is not valid JSON at byte ", e.byte, ".");
  } catch (const Json::exception&) {
    throw_error(ErrorCode::kCorruptFile, origin, " holds a number that is out of range.");
  }
  if (!root.is_object()) {
    throw_error(ErrorCode::kCorruptFile, origin, " is JSON but not an object.");
  }
  return root;
}

std::string in_quotes(std::string_view text) {
  return shown(Json(std::string(text.substr(0, kShownBytes))));
}

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 2 * kShownBytes) text = text.substr(0, kShownBytes) + "...";
  return text;
}

}  // namespace headrace
