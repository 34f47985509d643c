#include "text/json/value.h"

#include <algorithm>

#include "base/check.h"
#include "text/json/scanner.h"

namespace headrace::text::json {
namespace {

constexpr size_t kFewMembers = 16;

void check_keys(const Value::Object& members, const Scanner& scanner) {
  if (members.size() <= kFewMembers) {
    for (size_t i = 0; i < members.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (members[i].first == members[j].first) scanner.fail("a key that its object had before");
      }
    }
    return;
  }
  std::vector<std::string_view> keys;
  keys.reserve(members.size());
  for (const Value::Member& member : members) keys.push_back(member.first);
  std::sort(keys.begin(), keys.end());
  if (std::adjacent_find(keys.begin(), keys.end()) != keys.end()) {
    scanner.fail("a key that its object had before");
  }
}

Value read(Scanner* scanner, std::string* buffer);

Value read_object(Scanner* scanner, std::string* buffer) {
  Value::Object members;
  scanner->enter_object();
  std::string_view key;
  while (scanner->next_key(buffer, &key)) {
    std::string name(key);
    members.emplace_back(std::move(name), read(scanner, buffer));
  }
  check_keys(members, *scanner);
  return Value(std::move(members));
}

Value read_list(Scanner* scanner, std::string* buffer) {
  Value::List items;
  scanner->enter_list();
  while (scanner->next_item()) items.push_back(read(scanner, buffer));
  return Value(std::move(items));
}

Value read(Scanner* scanner, std::string* buffer) {
  switch (scanner->peek()) {
    case Scanner::Next::kNull:
      scanner->read_null();
      return Value();
    case Scanner::Next::kBool:
      return Value(scanner->read_bool());
    case Scanner::Next::kNumber: {
      const Scanner::Number number = scanner->read_number();
      return number.integral ? Value(number.integer) : Value(number.real);
    }
    case Scanner::Next::kString:
      return Value(std::string(scanner->read_string(buffer)));
    case Scanner::Next::kList:
      return read_list(scanner, buffer);
    case Scanner::Next::kObject:
      return read_object(scanner, buffer);
  }
  return Value();
}

}  // namespace

const Value* Value::find(std::string_view key) const noexcept {
  const Object* members = object();
  if (members == nullptr) return nullptr;
  for (const Member& member : *members) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

Value read_value(Scanner* scanner) {
  std::string buffer;
  return read(scanner, &buffer);
}

Value parse(std::string_view text, const Limits& limits) {
  if (text.size() > limits.max_bytes) {
    throw_error(ErrorCode::kLimitExceeded, "JSON of ", text.size(), " bytes, more than the ",
                limits.max_bytes, " allowed");
  }
  Scanner scanner(text, limits.max_depth, limits.max_values);
  Value value = read_value(&scanner);
  scanner.finish();
  return value;
}

}  // namespace headrace::text::json
