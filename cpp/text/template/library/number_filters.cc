#include <charconv>
#include <cmath>
#include <string>

#include "text/template/library/arguments.h"
#include "text/template/library/tables.h"
#include "text/template/run/operators.h"
#include "text/template/values/chars.h"

namespace headrace::text::jinja {
namespace {

std::string_view stripped(std::string_view text) {
  return strip_space_left(strip_space_right(text));
}

/// Digits without the underscores that may stand between them; empty if they aren't well formed.
std::string plain_digits(std::string_view text) {
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
    } else if (i == 0 || i + 1 == text.size() || text[i - 1] == '_') {
      return {};
    }
  }
  return digits;
}

Value big(Run& run, std::string_view sign, std::string_view digits) {
  Builder out(run);
  out.append(sign);
  out.append(digits);
  Value value = out.value();
  value.kind = Kind::kBigInt;
  return value;
}

/// int(text, base); missing for what is none.
Value int_of_text(Run& run, std::string_view text, int64_t base) {
  text = stripped(text);
  run.spend_bytes(text.size());
  const bool negative = text.substr(0, 1) == "-";
  if (negative || text.substr(0, 1) == "+") {
    text.remove_prefix(1);
  }
  if (base < 0 || base == 1 || base > 36) {
    return Value();  // a ValueError, which the filter takes for no number
  }
  const char mark = text.size() > 2 && text[0] == '0' ? static_cast<char>(text[1] | 32) : '\0';
  const int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  if (marked != 0 && (base == marked || base == 0)) {
    base = marked;
    text.remove_prefix(text.size() > 3 && text[2] == '_' ? 3 : 2);
  } else if (base == 0) {
    base = 10;
    const bool zeros = text.find_first_not_of("0_") == std::string_view::npos;
    if (text.size() > 1 && text[0] == '0' && !zeros) {
      return Value();
    }
  }
  std::string digits = plain_digits(text);
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') {
    return Value();
  }
  digits.insert(0, negative ? "-" : "");
  int64_t number = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, static_cast<int>(base));
  if (end != digits.data() + digits.size() || error == std::errc::invalid_argument) {
    return Value();
  }
  if (error == std::errc()) {
    return Value::of(number);
  }
  if (base != 10) {
    fail_big_integer();
  }
  const std::string_view bare = std::string_view(digits).substr(negative);
  return big(run, negative ? "-" : "", bare.substr(bare.find_first_not_of('0')));
}

/// float(text); missing for what is none.
Value float_of_text(Run& run, std::string_view text) {
  text = stripped(text);
  run.spend_bytes(text.size());
  std::string digits = plain_digits(text);
  std::string lower;
  for (const char byte : digits) {
    lower += static_cast<char>(byte >= 'A' && byte <= 'Z' ? byte + 32 : byte);
  }
  std::string_view bare = lower;
  const bool negative = bare.substr(0, 1) == "-";
  if (negative || bare.substr(0, 1) == "+") {
    bare.remove_prefix(1);
  }
  if (bare == "inf" || bare == "infinity" || bare == "nan") {
    const double value = bare == "nan" ? NAN : INFINITY;
    return Value::of(negative ? -value : value);
  }
  if (bare.empty() || bare.find_first_not_of("0123456789.e+-") != std::string_view::npos ||
      bare[0] == '-' || bare[0] == '+') {
    return Value();
  }
  double number = 0;
  const char* const stop = bare.data() + bare.size();
  const auto [end, error] = std::from_chars(bare.data(), stop, number);
  if (end != stop || error == std::errc::invalid_argument) {
    return Value();
  }
  if (error == std::errc::result_out_of_range) {
    number = std::strtod(bare.data(), nullptr);
  }
  return Value::of(negative ? -number : number);
}

Value int_of_float(Run& run, double number) {
  if (std::fabs(number) < 9.2e18) {
    return Value::of(static_cast<int64_t>(number));
  }
  char digits[400];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, number, std::chars_format::fixed, 0).ptr;
  return big(run, "", {digits, static_cast<size_t>(end - digits)});
}

Value filter_int(Run& run, Value self, const Given& given) {
  const Value otherwise =
      given.positional[0].is_missing() ? Value::of(int64_t{0}) : given.positional[0];
  if (self.is_undefined()) {
    fail_undefined(run, self);
  }
  if (self.is_integral()) {
    return Value::of(self.int_value());
  }
  if (self.kind == Kind::kBigInt) {
    return self;
  }
  if (self.kind == Kind::kFloat) {
    if (std::isinf(self.real)) {
      fail({"OverflowError: cannot convert float infinity to integer"});
    }
    return std::isnan(self.real) ? otherwise : int_of_float(run, self.real);
  }
  if (!self.is_string()) {
    return otherwise;
  }
  const Value& base = given.positional[1];
  const Value number = base.is_missing() || base.is_integral()
                           ? int_of_text(run, self.text(), int_argument(base, 10))
                           : Value();
  if (!number.is_missing()) {
    return number;
  }
  const Value real = float_of_text(run, self.text());
  return real.is_missing() || !std::isfinite(real.real) ? otherwise : int_of_float(run, real.real);
}

Value filter_float(Run& run, Value self, const Given& given) {
  if (self.is_undefined()) {
    fail_undefined(run, self);
  }
  if (self.is_number()) {
    return self.kind == Kind::kFloat ? self : Value::of(static_cast<double>(self.int_value()));
  }
  const Value number =
      self.is_string() || self.kind == Kind::kBigInt ? float_of_text(run, self.text()) : Value();
  if (!number.is_missing()) {
    return number;
  }
  return given.positional[0].is_missing() ? Value::of(0.0) : given.positional[0];
}

Value filter_abs(Run& run, Value self, const Given&) {
  if (self.kind == Kind::kFloat) {
    return Value::of(std::fabs(self.real));
  }
  if (self.is_integral()) {
    return self.int_value() < 0 ? negated(run, self) : Value::of(self.int_value());
  }
  if (self.kind == Kind::kBigInt && self.text()[0] == '-') {
    return big(run, "", self.text().substr(1));
  }
  if (self.kind == Kind::kBigInt) {
    return self;
  }
  fail({"TypeError: bad operand type for abs(): '", type_name(self), "'"});
}

/// To whole tens, hundreds, ...; half goes to the even one.
Value round_int(int64_t value, int64_t digits) {
  if (digits >= 0) {
    return Value::of(value);
  }
  if (digits < -18) {
    return Value::of(int64_t{0});
  }
  int64_t unit = 1;
  for (int64_t i = digits; i < 0; ++i) {
    unit *= 10;
  }
  const int64_t rest = ((value % unit) + unit) % unit;
  int64_t low = 0;
  if (__builtin_sub_overflow(value, rest, &low)) {
    fail_big_integer();
  }
  const bool up = rest > unit - rest || (rest == unit - rest && (low / unit) % 2 != 0);
  int64_t result = low;
  if (up && __builtin_add_overflow(low, unit, &result)) {
    fail_big_integer();
  }
  return Value::of(result);
}

double round_float(double value, int64_t digits) {
  if (!std::isfinite(value) || value == 0 || digits > 323) {
    return value;
  }
  if (digits < -308) {
    return std::copysign(0.0, value);
  }
  char text[720];
  if (digits >= 0) {
    const auto end = std::to_chars(text, text + sizeof text - 1, value, std::chars_format::fixed,
                                   static_cast<int>(digits))
                         .ptr;
    *end = '\0';
    return std::strtod(text, nullptr);
  }
  // As many significant digits as are left.
  const double unit = std::strtod(("1e" + std::to_string(-digits)).c_str(), nullptr);
  const double size = std::fabs(value);
  if (size <= unit / 2) {
    return std::copysign(0.0, value);
  }
  if (size < unit) {
    return std::copysign(unit, value);
  }
  const auto shortest = std::to_chars(text, text + sizeof text, size, std::chars_format::fixed, 0);
  const int64_t whole_digits = shortest.ptr - text;
  const auto end = std::to_chars(text, text + sizeof text - 1, value, std::chars_format::scientific,
                                 static_cast<int>(whole_digits + digits - 1))
                       .ptr;
  *end = '\0';
  return std::strtod(text, nullptr);
}

Value filter_round(Run& run, Value self, const Given& given) {
  const Value& method = given.positional[1];
  const std::string_view how = method.is_missing() ? "common" : text_argument(method, "method");
  if (how != "common" && how != "ceil" && how != "floor") {
    fail({"method must be common, ceil or floor"});
  }
  const bool plain = how == "common" &&
                     (given.positional[0].is_missing() ||
                      (given.positional[0].is_integral() && given.positional[0].int_value() >= 0));
  if (self.kind == Kind::kBigInt && plain) {
    return self;
  }
  if (self.is_undefined() || !self.is_number()) {
    if (self.is_undefined() && how != "common") {
      fail_undefined(run, self);
    }
    fail({"TypeError: type ", type_name(self), " can't be rounded"});
  }
  const Value precision =
      given.positional[0].is_missing() ? Value::of(int64_t{0}) : given.positional[0];
  if (how == "common") {
    if (precision.is_none()) {
      return self.kind == Kind::kFloat ? filter_int(run, Value::of(std::nearbyint(self.real)),
                                                    {&given.positional[1], 2, nullptr, 0})
                                       : Value::of(self.int_value());
    }
    const int64_t digits = int_argument(precision, 0);
    return self.kind == Kind::kFloat ? Value::of(round_float(self.real, digits))
                                     : round_int(self.int_value(), digits);
  }
  const Value unit = operate(run, Operation::kPow, Value::of(int64_t{10}), precision);
  const Value scaled = operate(run, Operation::kMul, self, unit);
  Value whole = scaled;
  if (scaled.kind == Kind::kFloat) {
    if (!std::isfinite(scaled.real)) {
      fail({"OverflowError: cannot convert float infinity to integer"});
    }
    whole = int_of_float(run, how == "ceil" ? std::ceil(scaled.real) : std::floor(scaled.real));
  }
  return operate(run, Operation::kDiv, whole, unit);
}

}  // namespace

Table number_filters() {
  static constexpr Builtin kFilters[] = {
      {"abs", filter_abs},
      {"float", filter_float, "default"},
      {"int", filter_int, "default base"},
      {"round", filter_round, "precision method"},
  };
  return kFilters;
}

}  // namespace headrace::text::jinja
