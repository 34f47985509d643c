#include <string>

#include "base/check.h"
#include "text/json/scanner.h"
#include "text/template/json_values/json.h"
#include "text/template/values/compare.h"
#include "text/template/values/dict.h"
#include "text/template/values/variables.h"

namespace headrace::text::jinja {
namespace {

class Reader {
 public:
  Reader(Run& run, std::string_view text)
      : run_(run), text_(text), scanner_(text, kMostVariableLevels, text.size() + 1) {}

  Dict* variables() {
    if (scanner_.peek() != json::Scanner::Next::kObject) {
      throw_error(ErrorCode::kInvalidArgument,
                  "the variables of a chat template must be a JSON object");
    }
    Dict* const dict = object();
    scanner_.finish();
    return dict;
  }

 private:
  Value value();
  Value number();
  Value list();
  Dict* object();
  std::string_view kept(std::string_view text) {
    const bool in_place = text.data() >= text_.data() && text.data() < text_.data() + text_.size();
    return in_place ? text : run_.arena.copy(text);
  }

  Run& run_;
  std::string_view text_;
  json::Scanner scanner_;
  std::string buffer_;
};

Value Reader::value() {
  run_.spend(1);
  switch (scanner_.peek()) {
    case json::Scanner::Next::kNull:
      scanner_.read_null();
      return Value::none();
    case json::Scanner::Next::kBool:
      return Value::of(scanner_.read_bool());
    case json::Scanner::Next::kNumber:
      return number();
    case json::Scanner::Next::kString:
      return Value::of(kept(scanner_.read_string(&buffer_)));
    case json::Scanner::Next::kList:
      return list();
    default:
      return Value::of(object());
  }
}

Value Reader::number() {
  const size_t start = scanner_.offset();
  const json::Scanner::Number number = scanner_.read_number();
  if (number.integral) {
    return Value::of(number.integer);
  }
  const std::string_view digits = text_.substr(start, scanner_.offset() - start);
  if (digits.find_first_not_of("-0123456789") != std::string_view::npos) {
    return Value::of(number.real);
  }
  Value big = Value::of(digits);
  big.kind = Kind::kBigInt;
  return big;
}

Value Reader::list() {
  ListBuilder items(run_);
  scanner_.enter_list();
  while (scanner_.next_item()) {
    items.add(value());
  }
  return items.value();
}

Dict* Reader::object() {
  Dict* const dict = new_dict(run_, 4);
  scanner_.enter_object();
  std::string_view key;
  while (scanner_.next_key(&buffer_, &key)) {
    const Value name = Value::of(kept(key));
    dict_set(run_, dict, name, value());
  }
  return dict;
}

}  // namespace

Dict* variables_from_json(Run& run, std::string_view text) { return Reader(run, text).variables(); }

}  // namespace headrace::text::jinja
