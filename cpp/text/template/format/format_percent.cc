#include <cmath>

#include "text/template/format/format.h"
#include "text/template/library/arguments.h"
#include "text/template/values/chars.h"
#include "text/template/values/dict.h"

namespace headrace::text::jinja {
namespace {

/// Fills %-fields.
class Percent {
 public:
  Percent(Run& run, const Value& format, const Value& values)
      : run_(run),
        format_(format.text()),
        markup_(format.is_markup()),
        values_(values),
        out_(run) {}

  Value result();

 private:
  struct Field {
    bool left = false, plus = false, space = false, zeros = false, alternate = false;
    int64_t width = 0;
    int64_t precision = -1;
    char kind = '\0';
  };
  void field();
  void flags(Field* field);
  int64_t amount();
  void key();
  Value next();
  Value escaped_if_markup(const Value& text) { return markup_ ? escaped(run_, text) : text; }
  void fill(const Field& field);
  void fill_text(const Field& field, std::string_view text);
  void fill_number(const Field& field, bool negative, std::string_view prefix,
                   std::string_view digits);
  void fill_int(const Field& field, const Value& value);
  void fill_float(const Field& field, const Value& value);
  void fill_char(const Field& field, const Value& value);

  Run& run_;
  std::string_view format_;
  bool markup_;
  Value values_;
  Builder out_;
  size_t at_ = 0;
  uint32_t used_ = 0;
  bool by_key_ = false;
  Value keyed_;
};

Value Percent::result() {
  run_.spend_bytes(format_.size());
  while (at_ < format_.size()) {
    const size_t percent = std::min(format_.find('%', at_), format_.size());
    out_.append(format_.substr(at_, percent - at_));
    at_ = percent + 1;
    if (percent < format_.size()) {
      run_.spend(1);
      field();
    }
  }
  const bool mapping = values_.kind == Kind::kDict;
  const uint32_t given = values_.kind == Kind::kTuple ? values_.size : 1;
  // A list is a mapping to Python here, and so is what was given by one value it didn't need.
  if (used_ < given && !mapping &&
      !(values_.kind != Kind::kTuple &&
        (values_.kind == Kind::kList || values_.kind == Kind::kRange || values_.is_undefined()))) {
    fail({"TypeError: not all arguments converted during string formatting"});
  }
  return out_.value(markup_ ? kMarkup : kPlain);
}

Value Percent::next() {
  if (by_key_) {
    return keyed_;
  }
  const bool tuple = values_.kind == Kind::kTuple;
  if (used_ >= (tuple ? values_.size : 1)) {
    fail({"TypeError: not enough arguments for format string"});
  }
  ++used_;
  return tuple ? values_.items[used_ - 1] : values_;
}

void Percent::key() {
  size_t depth = 1;
  const size_t start = ++at_;
  for (; at_ < format_.size() && depth > 0; ++at_) {
    depth += format_[at_] == '(' ? 1 : 0;
    depth -= format_[at_] == ')' ? 1 : 0;
  }
  if (depth > 0) {
    fail({"ValueError: incomplete format key"});
  }
  const std::string_view name = format_.substr(start, at_ - 1 - start);
  if (values_.kind != Kind::kDict) {
    fail({"TypeError: format requires a mapping"});
  }
  const Value* const value = dict_get(run_, values_.dict, name);
  if (value == nullptr) {
    fail({"KeyError: ", repr_of(run_, Value::of(name)).text()});
  }
  by_key_ = true;
  keyed_ = *value;
}

void Percent::flags(Field* field) {
  for (; at_ < format_.size(); ++at_) {
    switch (format_[at_]) {
      case '-':
        field->left = true;
        break;
      case '+':
        field->plus = true;
        break;
      case ' ':
        field->space = true;
        break;
      case '0':
        field->zeros = true;
        break;
      case '#':
        field->alternate = true;
        break;
      default:
        return;
    }
  }
}

int64_t Percent::amount() {
  if (at_ < format_.size() && format_[at_] == '*') {
    ++at_;
    const Value value = next();
    if (!value.is_integral()) {
      fail({"TypeError: * wants int"});
    }
    return value.int_value();
  }
  int64_t number = 0;
  while (at_ < format_.size() && format_[at_] >= '0' && format_[at_] <= '9') {
    number = number * 10 + (format_[at_++] - '0');
    if (number > INT32_MAX) {
      fail({"ValueError: width or precision too big"});
    }
  }
  return number;
}

void Percent::field() {
  Field field;
  by_key_ = false;
  if (at_ < format_.size() && format_[at_] == '(') {
    key();
  }
  flags(&field);
  field.width = amount();
  if (field.width < -INT32_MAX) {
    fail({"OverflowError: the width of a field is too large"});
  }
  if (field.width < 0) {
    field.left = true;
    field.width = -field.width;
  }
  if (at_ < format_.size() && format_[at_] == '.') {
    ++at_;
    field.precision = std::max<int64_t>(amount(), 0);
  }
  while (at_ < format_.size() &&
         (format_[at_] == 'h' || format_[at_] == 'l' || format_[at_] == 'L')) {
    ++at_;
  }
  if (at_ >= format_.size()) {
    fail({"ValueError: incomplete format"});
  }
  field.kind = format_[at_++];
  if (field.kind == '%') {
    out_.append('%');
  } else {
    fill(field);
  }
}

void Percent::fill(const Field& field) {
  const Value value = next();
  switch (field.kind) {
    case 's':
      return fill_text(field, (markup_ ? escaped(run_, value) : soft_str(run_, value)).text());
    case 'r':
      return fill_text(field, escaped_if_markup(repr_of(run_, value)).text());
    case 'a':
      fail_unsupported(0, {"%a in a format"});
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
      return fill_int(field, value);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      return fill_float(field, value);
    case 'c':
      return fill_char(field, value);
    default:
      fail({"ValueError: unsupported format character '",
            format_.substr(at_ - 1, utf8_size(format_[at_ - 1])), "'"});
  }
}

void Percent::fill_text(const Field& field, std::string_view text) {
  run_.spend_bytes(text.size());
  if (field.precision >= 0) {
    text = text.substr(0, byte_of_char(text, static_cast<size_t>(field.precision)));
  }
  const int64_t length = static_cast<int64_t>(char_count(text));
  const uint64_t padding = field.width > length ? static_cast<uint64_t>(field.width - length) : 0;
  out_.append_times(" ", field.left ? 0 : padding);
  out_.append(text);
  out_.append_times(" ", field.left ? padding : 0);
}

void Percent::fill_number(const Field& field, bool negative, std::string_view prefix,
                          std::string_view digits) {
  const std::string_view sign = negative ? "-" : field.plus ? "+" : field.space ? " " : "";
  const int64_t length = static_cast<int64_t>(sign.size() + prefix.size() + digits.size());
  const uint64_t padding = field.width > length ? static_cast<uint64_t>(field.width - length) : 0;
  const bool zeros = field.zeros && !field.left;
  out_.append_times(" ", field.left || zeros ? 0 : padding);
  out_.append(sign);
  out_.append(prefix);
  out_.append_times("0", zeros ? padding : 0);
  out_.append(digits);
  out_.append_times(" ", field.left ? padding : 0);
}

void Percent::fill_int(const Field& field, const Value& value) {
  const bool decimal = field.kind == 'd' || field.kind == 'i' || field.kind == 'u';
  int64_t number = 0;
  if (value.is_integral()) {
    number = value.int_value();
  } else if (decimal && value.kind == Kind::kFloat && std::fabs(value.real) < 9.2e18) {
    number = static_cast<int64_t>(value.real);
  } else if (value.kind == Kind::kBigInt || value.kind == Kind::kFloat) {
    if (value.kind == Kind::kFloat && !decimal) {
      fail({"TypeError: %x and %o need an integer, not float"});
    }
    fail_big_integer();
  } else if (value.is_undefined()) {
    fail_undefined(run_, value);
  } else {
    fail({"TypeError: %", std::string_view(&field.kind, 1), " format: a real number is required, ",
          "not ", type_name(value)});
  }
  const int base = decimal ? 10 : field.kind == 'o' ? 8 : 16;
  const uint64_t size =
      number < 0 ? uint64_t{0} - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  std::string_view digits = int_digits(run_, size, base, field.kind == 'X');
  if (field.precision > static_cast<int64_t>(digits.size())) {
    Builder longer(run_);
    longer.append_times("0", static_cast<uint64_t>(field.precision) - digits.size());
    longer.append(digits);
    digits = longer.view();
  }
  const std::string_view prefix = !field.alternate || decimal ? ""
                                  : field.kind == 'o'         ? "0o"
                                  : field.kind == 'x'         ? "0x"
                                                              : "0X";
  fill_number(field, number < 0, prefix, digits);
}

void Percent::fill_float(const Field& field, const Value& value) {
  if (value.is_undefined()) {
    fail_undefined(run_, value);
  }
  if (value.kind == Kind::kBigInt) {
    fail_big_integer();
  }
  if (!value.is_number()) {
    fail({"TypeError: must be real number, not ", type_name(value)});
  }
  const double number =
      value.kind == Kind::kFloat ? value.real : static_cast<double>(value.int_value());
  NumberForm form;
  form.kind = field.kind;
  form.precision = static_cast<int>(std::min<int64_t>(field.precision, INT32_MAX));
  form.alternate = field.alternate;
  const bool negative = std::signbit(number) && !std::isnan(number);
  fill_number(field, negative, "", float_digits(run_, std::fabs(number), form));
}

void Percent::fill_char(const Field& field, const Value& value) {
  Field plain = field;
  plain.precision = -1;
  if (value.is_integral()) {
    const int64_t number = value.int_value();
    if (number < 0 || number > 0x10FFFF || (number >= 0xD800 && number < 0xE000)) {
      fail({"OverflowError: %c arg is no Unicode character"});
    }
    Builder text(run_);
    text.append_char(static_cast<char32_t>(number));
    return fill_text(plain, text.view());
  }
  if (!value.is_string() || char_count(value.text()) != 1) {
    fail({"TypeError: %c requires int or char"});
  }
  fill_text(plain, value.text());
}

}  // namespace

Value format_percent(Run& run, const Value& format, const Value& values) {
  return Percent(run, format, values).result();
}

}  // namespace headrace::text::jinja
