#include "model/config/json.h"

#include <utility>
#include <vector>

#include "base/check.h"

namespace headrace {

namespace {

constexpr size_t kShownBytes = 120;

/// Builds the value as the parser meets its parts, and throws where a limit or uniqueness of keys
/// is broken. Each event takes the time of one insertion, whatever came before.
class Builder {
 public:
  Builder(const std::string& origin, const JsonLimits& limits, Json& root)
      : origin_(origin), limits_(limits), root_(root) {}

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(Json::number_integer_t value) { return put(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return put(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(Json::binary_t& value) { return put(std::move(value)); }
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    count();
    const auto [place, is_new] = open_.back()->get_ref<Json::object_t&>().emplace(name, nullptr);
    if (!is_new) {
      throw_error(ErrorCode::kCorruptFile, origin_, " has the key ", in_quotes(name), " twice.");
    }
    member_ = &place->second;
    return true;
  }

  bool parse_error(size_t byte, const std::string&, const Json::exception& error) {
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
  Json& place() {
    count();
    if (open_.empty()) return root_;
    if (member_ != nullptr) return *std::exchange(member_, nullptr);
    return open_.back()->get_ref<Json::array_t&>().emplace_back();
  }

  template <class Value>
  bool put(Value&& value) {
    place() = Json(std::forward<Value>(value));
    return true;
  }

  bool open(Json empty) {
    if (open_.size() >= static_cast<size_t>(limits_.max_depth)) {
      throw_error(ErrorCode::kCorruptFile, origin_, " nests deeper than ", limits_.max_depth,
                  " levels.");
    }
    Json& here = place();
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
  Json& root_;
  std::vector<Json*> open_;  // objects and arrays: only the last one grows, so that none moves
  Json* member_ = nullptr;   // that the last key is for
  size_t values_ = 0;
};

}  // namespace

Json parse_json_object(std::string_view text, const std::string& origin, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    throw_error(ErrorCode::kCorruptFile, origin, " has ", text.size(), " bytes of JSON; at most ",
                limits.max_bytes, " are accepted.");
  }
  Json root;
  Builder builder(origin, limits, root);
  Json::sax_parse(text.begin(), text.end(), &builder);
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
