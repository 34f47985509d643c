#include "grammar/schema/schema_text.h"

#include <charconv>
#include <cmath>

#include "text/unicode/utf8.h"

namespace headrace::grammar {

namespace {

constexpr int kMostDepth = 100;

Value parsed(std::string_view text, size_t max_bytes) {
  try {
    return text::json::parse(text, {.max_bytes = max_bytes, .max_depth = kMostDepth});
  } catch (const InternalError&) {
    throw;
  } catch (const Error& error) {
    throw_error(ErrorCode::kInvalidArgument, error.what());
  }
}

/// Appends the path from `at` to `wanted`. JSON is nested at most kMostDepth deep.
bool find_path(const Value& at, const Value* wanted, std::string* path) {
  if (&at == wanted) return true;
  const size_t length = path->size();
  if (const Value::Object* const object = at.object()) {
    for (const auto& [key, value] : *object) {
      *path += '/' + key;
      if (find_path(value, wanted, path)) return true;
      path->resize(length);
    }
  } else if (const Value::List* const list = at.list()) {
    for (size_t i = 0; i < list->size(); ++i) {
      *path += '/' + std::to_string(i);
      if (find_path((*list)[i], wanted, path)) return true;
      path->resize(length);
    }
  }
  return false;
}

/// Undoes what URLs and JSON pointers escape; nothing if that can't be.
std::optional<std::string> unescaped(std::string_view part) {
  std::string bytes;
  for (size_t i = 0; i < part.size(); ++i) {
    if (part[i] != '%') {
      bytes += part[i];
      continue;
    }
    unsigned value = 0;
    const char* const begin = part.data() + i + 1;
    if (i + 2 >= part.size() || std::from_chars(begin, begin + 2, value, 16).ptr != begin + 2) {
      return std::nullopt;
    }
    bytes += static_cast<char>(value);
    i += 2;
  }
  std::string out;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '~') {
      out += bytes[i];
    } else if (i + 1 < bytes.size() && (bytes[i + 1] == '0' || bytes[i + 1] == '1')) {
      out += bytes[++i] == '0' ? '~' : '/';
    } else {
      return std::nullopt;
    }
  }
  return out;
}

const Value* member(const Value& box, const std::string& key) {
  const Value::List* const list = box.list();
  if (list == nullptr) return box.find(key);
  size_t place = 0;
  const char* const end = key.data() + key.size();
  const auto read = std::from_chars(key.data(), end, place);
  return read.ec == std::errc() && read.ptr == end && place < list->size() ? &(*list)[place]
                                                                           : nullptr;
}

}  // namespace

SchemaText::SchemaText(std::string_view text, size_t max_bytes) : root_(parsed(text, max_bytes)) {}

std::string SchemaText::path(const Value& schema) const {
  std::string out;
  find_path(root_, &schema, &out);
  return out.empty() ? "/" : text::shortened(out);
}

void SchemaText::wrong(const Value& schema, std::string_view keyword, std::string_view what) const {
  throw_error(ErrorCode::kInvalidArgument, text::shortened(keyword), " at ", path(schema), " ",
              what);
}

void SchemaText::unsupported(const Value& schema, std::string_view keyword,
                             std::string_view what) const {
  throw_error(ErrorCode::kUnsupported, text::shortened(keyword), " at ", path(schema), " ", what);
}

const Value& SchemaText::target(const Value& schema, std::string_view reference) const {
  const std::string shown = "$ref '" + std::string(reference) + "'";
  if (!reference.starts_with('#') || (reference.size() > 1 && reference[1] != '/')) {
    unsupported(schema, shown,
                "isn't supported: only those within the schema are, as #/$defs/NAME");
  }
  const Value* at = &root_;
  std::string_view rest = reference.substr(1);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('/', 1), rest.size());
    const std::optional<std::string> key = unescaped(rest.substr(1, end - 1));
    at = key ? member(*at, *key) : nullptr;
    if (at == nullptr) wrong(schema, shown, "names nothing");
    rest.remove_prefix(end);
  }
  return *at;
}

const Value::List* SchemaText::list(const Value& schema, std::string_view keyword) const {
  const Value* const found = schema.find(keyword);
  if (found != nullptr && found->list() == nullptr) wrong(schema, keyword, "must be a list");
  return found == nullptr ? nullptr : found->list();
}

const Value::Object* SchemaText::object(const Value& schema, std::string_view keyword) const {
  const Value* const found = schema.find(keyword);
  if (found != nullptr && found->object() == nullptr) wrong(schema, keyword, "must be an object");
  return found == nullptr ? nullptr : found->object();
}

const std::string* SchemaText::string(const Value& schema, std::string_view keyword) const {
  const Value* const found = schema.find(keyword);
  if (found != nullptr && found->string() == nullptr) wrong(schema, keyword, "must be a string");
  return found == nullptr ? nullptr : found->string();
}

std::optional<uint32_t> SchemaText::count(const Value& schema, std::string_view keyword) const {
  const Value* const found = schema.find(keyword);
  if (found == nullptr) return std::nullopt;
  const double value = found->integer() != nullptr ? static_cast<double>(*found->integer())
                       : found->real() != nullptr  ? *found->real()
                                                   : -1;
  if (value < 0 || value != std::floor(value)) {
    wrong(schema, keyword, "must be a whole number that isn't negative");
  }
  return value >= kHuge ? kHuge : static_cast<uint32_t>(value);
}

}  // namespace headrace::grammar
