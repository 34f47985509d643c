#include "chat/raw_json.h"

#include <utility>

#include "base/check.h"
#include "headrace/status.h"
#include "text/json/write.h"

namespace headrace::chat {
namespace {

using text::json::Scanner;

/// Of a value that was checked: nothing of it is too deep or too much.
Scanner scan(Raw value) {
  return Scanner(value, static_cast<int>(value.size() < INT32_MAX ? value.size() : INT32_MAX),
                 value.size() + 1);
}

Raw next_value(Raw whole, Scanner* scanner) {
  scanner->peek();
  const size_t begin = scanner->offset();
  scanner->skip_value();
  return whole.substr(begin, scanner->offset() - begin);
}

/// The value that is all of a text. Throws Error of the scanner.
Raw whole_value(std::string_view text, int max_depth) {
  Scanner scanner(text, max_depth, text.size() + 1);
  const Raw value = next_value(text, &scanner);
  scanner.finish();
  return value;
}

/// Most texts that were cut don't end as they begin: that is seen at once, an exception takes
/// microseconds.
bool ends_as_it_begins(std::string_view text) {
  constexpr const char* kSpaces = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return false;
  const size_t last = text.find_last_not_of(kSpaces);
  const size_t kind = std::string_view("{[\"").find(text[first]);
  return kind == std::string_view::npos || (last > first && text[last] == "}]\""[kind]);
}

}  // namespace

Raw checked_json(std::string_view text, std::string_view what, size_t max_bytes, int max_depth) {
  if (text.size() > max_bytes) {
    throw_error(ErrorCode::kLimitExceeded, what, ": ", text.size(), " bytes, more than the ",
                max_bytes, " allowed");
  }
  try {
    return whole_value(text, max_depth);
  } catch (const Error& error) {
    const bool corrupt = error.code() == ErrorCode::kCorruptFile;
    throw_error(corrupt ? ErrorCode::kInvalidArgument : error.code(), what, ": ", error.what());
  }
}

std::optional<Raw> json_in(std::string_view text, int max_depth) {
  if (!ends_as_it_begins(text)) return std::nullopt;
  try {
    return whole_value(text, max_depth);
  } catch (const Error&) {
    return std::nullopt;
  }
}

Kind kind_of(Raw value) { return scan(value).peek(); }

const Raw* Members::find(std::string_view name) const noexcept {
  const Raw* found = nullptr;
  for (const Member& member : all) {
    if (member.name == name) found = &member.value;
  }
  return found;
}

const Raw* Members::find(std::string_view name, Kind kind) const noexcept {
  const Raw* found = find(name);
  return found != nullptr && kind_of(*found) == kind ? found : nullptr;
}

Members members_of(Raw object) {
  Members members;
  Scanner scanner = scan(object);
  scanner.enter_object();
  std::string buffer;
  std::string_view key;
  while (scanner.next_key(&buffer, &key)) {
    std::string name(key);
    const Raw value = next_value(object, &scanner);
    members.all.push_back({std::move(name), value});
  }
  return members;
}

std::vector<Raw> items_of(Raw list) {
  std::vector<Raw> items;
  Scanner scanner = scan(list);
  scanner.enter_list();
  while (scanner.next_item()) items.push_back(next_value(list, &scanner));
  return items;
}

std::string text_of(Raw string) {
  std::string buffer;
  Scanner scanner = scan(string);
  return std::string(scanner.read_string(&buffer));
}

void append_key(std::string_view name, std::string* out) {
  if (!out->ends_with('{')) *out += ", ";
  text::json::append_string(name, out);
  *out += ": ";
}

}  // namespace headrace::chat
