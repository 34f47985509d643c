#include "chat/raw_json.h"

#include <utility>

#include "base/check.h"
#include "headrace/status.h"
#include "text/json/write.h"
#include "text/unicode/utf8.h"

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

}  // namespace

Raw checked_json(std::string_view text, std::string_view what, size_t max_bytes, int max_depth) {
  if (text.size() > max_bytes) {
    throw_error(ErrorCode::kLimitExceeded, what, ": ", text.size(), " bytes, more than the ",
                max_bytes, " allowed");
  }
  try {
    Scanner scanner(text, max_depth, text.size() + 1);
    const Raw value = next_value(text, &scanner);
    scanner.finish();
    return value;
  } catch (const Error& error) {
    const bool corrupt = error.code() == ErrorCode::kCorruptFile;
    throw_error(corrupt ? ErrorCode::kInvalidArgument : error.code(), what, ": ", error.what());
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

std::string shown(Raw value) {
  constexpr size_t kMost = 60;
  if (value.size() <= kMost) return std::string(value);
  size_t end = kMost;
  while (text::utf8_continues(value[end])) --end;
  return std::string(value.substr(0, end)) + "...";
}

}  // namespace headrace::chat
