#include <cmath>

#include "text/template/format/format.h"
#include "text/template/library/arguments.h"
#include "text/template/run/members.h"
#include "text/template/values/chars.h"

namespace headrace::text::jinja {
namespace {

/// [[fill]align][sign][#][0][width][,|_][.precision][kind]
struct Spec {
  std::string_view fill = " ";
  char align = '\0';
  char sign = '-';
  bool alternate = false;
  bool zeros = false;
  int64_t width = 0;
  char grouping = '\0';
  int64_t precision = -1;
  char kind = '\0';
};

bool is_align(char byte) noexcept {
  return byte == '<' || byte == '>' || byte == '^' || byte == '=';
}

int64_t read_amount(std::string_view* rest) {
  int64_t number = -1;
  while (!rest->empty() && (*rest)[0] >= '0' && (*rest)[0] <= '9') {
    number = std::max<int64_t>(number, 0) * 10 + ((*rest)[0] - '0');
    rest->remove_prefix(1);
    if (number > INT32_MAX) {
      fail_limit({"ValueError: Too many decimal digits in format string"});
    }
  }
  return number;
}

bool take(std::string_view* rest, char byte) {
  const bool found = rest->starts_with(byte);
  rest->remove_prefix(found);
  return found;
}

Spec read_spec(std::string_view text, const Value& value) {
  Spec spec;
  std::string_view rest = text;
  const size_t first = rest.empty() ? 0 : utf8_size(rest[0]);
  if (rest.size() > first && is_align(rest[first])) {
    spec.fill = rest.substr(0, first);
    spec.align = rest[first];
    rest.remove_prefix(first + 1);
  } else if (!rest.empty() && is_align(rest[0])) {
    spec.align = rest[0];
    rest.remove_prefix(1);
  }
  if (!rest.empty() && (rest[0] == '+' || rest[0] == '-' || rest[0] == ' ')) {
    spec.sign = rest[0];
    rest.remove_prefix(1);
    if (value.is_string()) {
      fail({"ValueError: Sign not allowed in string format specifier"});
    }
  }
  spec.alternate = take(&rest, '#');
  if (rest.starts_with('0')) {
    spec.zeros = true;
    if (spec.align == '\0') {
      spec.fill = "0";
      spec.align = value.is_string() ? '<' : '=';
    }
  }
  spec.width = std::max<int64_t>(read_amount(&rest), 0);
  spec.grouping = take(&rest, ',') ? ',' : take(&rest, '_') ? '_' : '\0';
  if (take(&rest, '.')) {
    spec.precision = read_amount(&rest);
    if (spec.precision < 0) {
      fail({"ValueError: Format specifier missing precision"});
    }
  }
  if (!rest.empty()) {
    spec.kind = rest[0];
    rest.remove_prefix(1);
  }
  if (!rest.empty()) {
    fail({"ValueError: Invalid format specifier '", text, "'"});
  }
  return spec;
}

[[noreturn]] void fail_kind(const Spec& spec, const Value& value) {
  fail({"ValueError: Unknown format code '", std::string_view(&spec.kind, 1),
        "' for object of type '", type_name(value), "'"});
}

/// Fills {}-fields.
class Braces {
 public:
  Braces(Run& run, const Value& format, const Given& given)
      : run_(run), markup_(format.is_markup()), given_(given) {}

  void expand(std::string_view format, int depth, Builder* out);

 private:
  std::string_view field(std::string_view format, size_t* at);
  void one(std::string_view content, int depth, Builder* out);
  Value lookup(std::string_view name);
  Value first_of(std::string_view name);
  Value member(const Value& of, std::string_view* rest);
  void put(const Value& value, char conversion, std::string_view spec, Builder* out);
  void put_text(std::string_view text, const Spec& spec, Builder* out);
  void put_number(const Value& value, const Spec& spec, Builder* out);
  std::string_view digits(const Value& value, const Spec& spec, std::string_view* prefix);
  std::string_view grouped(std::string_view digits, char by, size_t each);

  Run& run_;
  bool markup_;
  const Given& given_;
  int64_t automatic_ = 0;  ///< the next field without a name; -1: fields are numbered
};

/// The text between the braces at `at`.
std::string_view Braces::field(std::string_view format, size_t* at) {
  const size_t start = *at;
  for (size_t depth = 1; *at < format.size(); ++*at) {
    depth += format[*at] == '{' ? 1 : 0;
    depth -= format[*at] == '}' ? 1 : 0;
    if (depth == 0) {
      return format.substr(start, (*at)++ - start);
    }
  }
  fail({"ValueError: expected '}' before end of string"});
}

void Braces::expand(std::string_view format, int depth, Builder* out) {
  if (depth > 2) {
    fail({"ValueError: Max string recursion exceeded"});
  }
  run_.spend_bytes(format.size());
  for (size_t at = 0; at < format.size();) {
    const size_t brace = std::min(format.find_first_of("{}", at), format.size());
    out->append(format.substr(at, brace - at));
    at = brace + 1;
    if (brace == format.size()) {
      break;
    }
    if (at < format.size() && format[at] == format[brace]) {
      out->append(format[at++]);
    } else if (format[brace] == '}') {
      fail({"ValueError: Single '}' encountered in format string"});
    } else if (at == format.size()) {
      fail({"ValueError: Single '{' encountered in format string"});
    } else {
      run_.spend(1);
      one(field(format, &at), depth, out);
    }
  }
}

void Braces::one(std::string_view content, int depth, Builder* out) {
  size_t end = 0;
  for (bool bracket = false; end < content.size(); ++end) {
    bracket = content[end] == '[' || (bracket && content[end] != ']');
    if (!bracket && (content[end] == '!' || content[end] == ':')) {
      break;
    }
  }
  const std::string_view name = content.substr(0, end);
  std::string_view rest = content.substr(end);
  char conversion = '\0';
  if (take(&rest, '!')) {
    if (rest.empty() || (rest.size() > 1 && rest[1] != ':')) {
      fail({"ValueError: expected ':' after conversion specifier"});
    }
    conversion = rest[0];
    rest.remove_prefix(1);
  }
  take(&rest, ':');
  const Value value = lookup(name);
  Builder spec(run_);
  expand(rest, depth + 1, &spec);
  put(value, conversion, spec.view(), out);
}

Value Braces::first_of(std::string_view name) {
  const bool number = !name.empty() && name.size() < 10 &&
                      name.find_first_not_of("0123456789") == std::string_view::npos;
  if (!name.empty() && !number) {
    for (uint32_t i = 0; i < given_.named_count; ++i) {
      run_.spend(1);
      if (given_.named[i].name == name) {
        return given_.named[i].value;
      }
    }
    fail({"KeyError: '", name, "'"});
  }
  if (name.empty() ? automatic_ < 0 : automatic_ > 0) {
    fail(
        {"ValueError: cannot switch between manual field specification and automatic field "
         "numbering"});
  }
  int64_t place = automatic_;
  if (number) {
    place = 0;
    for (const char digit : name) {
      place = place * 10 + (digit - '0');
    }
  }
  automatic_ = number ? -1 : automatic_ + 1;
  if (place >= given_.count) {
    fail({"IndexError: Replacement index ", std::to_string(place),
          " out of range for positional args tuple"});
  }
  return given_.positional[place];
}

/// .name or [item] at the start of `rest`.
Value Braces::member(const Value& of, std::string_view* rest) {
  const bool attribute = take(rest, '.');
  if (!attribute && !take(rest, '[')) {
    fail({"ValueError: Only '.' or '[' may follow ']' in format field specifier"});
  }
  const size_t end =
      attribute ? std::min(rest->find_first_of(".["), rest->size()) : rest->find(']');
  if (end == std::string_view::npos || end == 0) {
    fail({end == 0 ? "ValueError: Empty attribute in format string"
                   : "ValueError: Missing ']' in format string"});
  }
  const std::string_view name = rest->substr(0, end);
  rest->remove_prefix(std::min(end + (attribute ? 0 : 1), rest->size()));
  if (attribute) {
    return get_attribute(run_, of, name);
  }
  if (name.size() < 18 && name.find_first_not_of("0123456789") == std::string_view::npos) {
    int64_t place = 0;
    for (const char digit : name) {
      place = place * 10 + (digit - '0');
    }
    return get_item(run_, of, Value::of(place));
  }
  return get_item(run_, of, Value::of(name));
}

Value Braces::lookup(std::string_view name) {
  const size_t end = std::min(name.find_first_of(".["), name.size());
  Value value = first_of(name.substr(0, end));
  std::string_view rest = name.substr(end);
  while (!rest.empty()) {
    run_.spend(1);
    value = member(value, &rest);
  }
  return value;
}

void Braces::put(const Value& given, char conversion, std::string_view text, Builder* out) {
  Value value = given;
  if (conversion == 'r') {
    value = repr_of(run_, value);
  } else if (conversion == 's') {
    value = str_of(run_, value);
  } else if (conversion == 'a') {
    fail_unsupported(0, {"the conversion !a in a format"});
  } else if (conversion != '\0') {
    fail({"ValueError: Unknown conversion specifier ", std::string_view(&conversion, 1)});
  }
  Builder filled(run_);
  Builder* const into = markup_ ? &filled : out;
  if (value.is_markup() && markup_) {
    if (!text.empty()) {
      fail({"ValueError: Unsupported format specification for Markup."});
    }
    return out->append(value.text());
  }
  if (text.empty()) {
    append_str(run_, into, value);
  } else if (value.is_string()) {
    put_text(value.text(), read_spec(text, value), into);
  } else if (value.is_number()) {
    const Spec spec = read_spec(text, value);
    put_number(value, spec, into);
  } else if (value.kind == Kind::kBigInt) {
    fail_big_integer();
  } else {
    fail({"TypeError: unsupported format string passed to ", type_name(value), ".__format__"});
  }
  if (markup_) {
    out->append(escaped(run_, filled.value()).text());
  }
}

void Braces::put_text(std::string_view text, const Spec& spec, Builder* out) {
  if (spec.kind != '\0' && spec.kind != 's') {
    fail_kind(spec, Value::of(text));
  }
  if (spec.align == '=' || spec.alternate || spec.grouping != '\0') {
    fail(
        {"ValueError: '=' alignment, '#', ',' and '_' are not allowed in string format "
         "specifier"});
  }
  run_.spend_bytes(text.size());
  if (spec.precision >= 0) {
    text = text.substr(0, byte_of_char(text, static_cast<size_t>(spec.precision)));
  }
  const int64_t length = static_cast<int64_t>(char_count(text));
  const uint64_t padding = spec.width > length ? static_cast<uint64_t>(spec.width - length) : 0;
  const uint64_t left = spec.align == '>' ? padding : spec.align == '^' ? padding / 2 : 0;
  out->append_times(spec.fill, left);
  out->append(text);
  out->append_times(spec.fill, padding - left);
}

std::string_view Braces::grouped(std::string_view digits, char by, size_t each) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  Builder out(run_);
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % each == 0) {
      out.append(by);
    }
    out.append(digits[i]);
  }
  out.append(digits.substr(whole));
  return out.view();
}

std::string_view Braces::digits(const Value& value, const Spec& spec, std::string_view* prefix) {
  const char small = static_cast<char>(spec.kind | 32);
  const bool real = value.kind == Kind::kFloat || spec.kind == '%' || small == 'e' ||
                    small == 'f' || small == 'g';
  if (real) {
    const double number =
        value.kind == Kind::kFloat ? value.real : static_cast<double>(value.int_value());
    if (spec.kind != '\0' && spec.kind != '%' && spec.kind != 'n' && small != 'e' && small != 'f' &&
        small != 'g') {
      fail_kind(spec, value);
    }
    NumberForm form;
    form.kind = spec.kind == '\0' ? 'r' : spec.kind == 'n' ? 'g' : spec.kind;
    form.precision = static_cast<int>(std::min<int64_t>(spec.precision, INT32_MAX));
    form.alternate = spec.alternate;
    return float_digits(run_, std::fabs(number), form);
  }
  if (spec.precision >= 0) {
    fail({"ValueError: Precision not allowed in integer format specifier"});
  }
  const int base = small == 'x' ? 16 : spec.kind == 'o' ? 8 : spec.kind == 'b' ? 2 : 10;
  if (base == 10 && spec.kind != '\0' && spec.kind != 'd' && spec.kind != 'n') {
    fail_kind(spec, value);
  }
  if (spec.alternate && base != 10) {
    *prefix = base == 2 ? "0b" : base == 8 ? "0o" : spec.kind == 'x' ? "0x" : "0X";
  }
  const int64_t number = value.int_value();
  const uint64_t size =
      number < 0 ? uint64_t{0} - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  return int_digits(run_, size, base, spec.kind == 'X');
}

void Braces::put_number(const Value& value, const Spec& spec, Builder* out) {
  if (value.kind == Kind::kBool && spec.kind == '\0') {
    Spec plain = spec;  // as an integer, but for a spec that has no kind at all: so Python does
    plain.kind = 'd';
    return put_number(Value::of(value.int_value()), plain, out);
  }
  if (spec.kind == 'c' && value.is_integral()) {
    const int64_t number = value.int_value();
    if (number < 0 || number > 0x10FFFF || (number >= 0xD800 && number < 0xE000)) {
      fail({"OverflowError: %c arg is no Unicode character"});
    }
    Builder text(run_);
    text.append_char(static_cast<char32_t>(number));
    Spec as_text = spec;
    as_text.kind = 's';
    as_text.align = spec.align == '\0' ? '<' : spec.align;
    return put_text(text.view(), as_text, out);
  }
  const bool negative = value.kind == Kind::kFloat
                            ? std::signbit(value.real) && !std::isnan(value.real)
                            : value.int_value() < 0;
  const std::string_view sign = negative           ? "-"
                                : spec.sign == '-' ? ""
                                                   : std::string_view(&spec.sign, 1);
  std::string_view prefix;
  std::string_view text = digits(value, spec, &prefix);
  if (spec.grouping != '\0') {
    const bool four = spec.kind == 'x' || spec.kind == 'X' || spec.kind == 'o' || spec.kind == 'b';
    if (four && spec.grouping == ',') {
      fail({"ValueError: Cannot specify ',' with '", std::string_view(&spec.kind, 1), "'."});
    }
    if (spec.align == '=' && spec.fill == "0" && spec.width > 0) {
      fail_unsupported(0, {"a format with both zeros in front and groups of digits"});
    }
    text = grouped(text, spec.grouping, four ? 4 : 3);
  }
  const int64_t length = static_cast<int64_t>(sign.size() + prefix.size() + text.size());
  const uint64_t padding = spec.width > length ? static_cast<uint64_t>(spec.width - length) : 0;
  const char align = spec.align == '\0' ? '>' : spec.align;
  out->append_times(spec.fill, align == '>' ? padding : align == '^' ? padding / 2 : 0);
  out->append(sign);
  out->append(prefix);
  out->append_times(spec.fill, align == '=' ? padding : 0);
  out->append(text);
  out->append_times(spec.fill, align == '<' ? padding : align == '^' ? padding - padding / 2 : 0);
}

}  // namespace

Value format_braces(Run& run, const Value& format, const Given& given) {
  Builder out(run);
  Braces(run, format, given).expand(format.text(), 1, &out);
  return out.value(format.tag);
}

}  // namespace headrace::text::jinja
