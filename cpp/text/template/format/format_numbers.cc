#include <charconv>
#include <cmath>

#include "text/template/format/format.h"
#include "text/template/values/repr.h"

namespace headrace::text::jinja {
namespace {

constexpr int kMostDigits = 100000;

std::string_view fixed_digits(Run& run, double value, std::chars_format format, int precision) {
  if (precision > kMostDigits) {
    fail_limit(
        {"a number is to have more than the ", std::to_string(kMostDigits), " digits allowed"});
  }
  const size_t room = static_cast<size_t>(precision) + 350;
  run.spend_bytes(room * 8);
  char* const text = static_cast<char*>(run.arena.allocate(room));
  const auto end = std::to_chars(text, text + room, value, format, precision).ptr;
  return {text, static_cast<size_t>(end - text)};
}

/// Without the zeros at the end of the fraction, in front of an exponent, too.
std::string_view without_zeros(Run& run, std::string_view digits) {
  const size_t exponent = std::min(digits.find('e'), digits.size());
  std::string_view number = digits.substr(0, exponent);
  if (number.find('.') == std::string_view::npos) {
    return digits;
  }
  while (number.ends_with('0')) {
    number.remove_suffix(1);
  }
  if (number.ends_with('.')) {
    number.remove_suffix(1);
  }
  Builder out(run);
  out.append(number);
  out.append(digits.substr(exponent));
  return out.view();
}

/// Python's 'g', which counts significant digits.
std::string_view general_digits(Run& run, double value, int precision, bool alternate,
                                bool keep_point) {
  precision = precision == 0 ? 1 : precision;
  const std::string_view tried =
      fixed_digits(run, value, std::chars_format::scientific, precision - 1);
  int exponent = 0;
  const size_t e = tried.find('e');
  std::from_chars(tried.data() + e + (tried[e + 1] == '+' ? 2 : 1), tried.data() + tried.size(),
                  exponent);
  // Text of a float without a letter keeps a digit behind the point.
  const int limit = keep_point ? precision - 1 : precision;
  const bool fixed = exponent >= -4 && exponent < limit;
  std::string_view digits = fixed ? fixed_digits(run, value, std::chars_format::fixed,
                                                 std::max(precision - 1 - exponent, 0))
                                  : tried;
  digits = alternate ? digits : without_zeros(run, digits);
  if (keep_point && fixed && digits.find('.') == std::string_view::npos) {
    Builder out(run);
    out.append(digits);
    out.append(".0");
    digits = out.view();
  }
  return digits;
}

}  // namespace

std::string_view float_digits(Run& run, double value, const NumberForm& form) {
  const char kind = static_cast<char>(form.kind | 32);
  const bool capitals = form.kind >= 'A' && form.kind <= 'Z';
  if (!std::isfinite(value)) {
    const bool nan = std::isnan(value);
    return capitals ? (nan ? "NAN" : "INF") : (nan ? "nan" : "inf");
  }
  const int precision = form.precision < 0 ? 6 : form.precision;
  std::string_view digits;
  if (kind == 'e') {
    digits = fixed_digits(run, value, std::chars_format::scientific, precision);
  } else if (kind == 'f') {
    digits = fixed_digits(run, value, std::chars_format::fixed, precision);
  } else if (form.kind == '%') {
    Builder out(run);
    out.append(fixed_digits(run, value * 100, std::chars_format::fixed, precision));
    out.append('%');
    return out.view();
  } else if (kind == 'r' && form.precision < 0) {
    Builder out(run);
    append_float(&out, value);
    return out.view();
  } else {
    digits = general_digits(run, value, precision, form.alternate, kind == 'r');
  }
  if (form.alternate && digits.find('.') == std::string_view::npos) {
    Builder out(run);
    const size_t exponent = std::min(digits.find('e'), digits.size());
    out.append(digits.substr(0, exponent));
    out.append('.');
    out.append(digits.substr(exponent));
    digits = out.view();
  }
  if (!capitals) {
    return digits;
  }
  Builder out(run);
  for (const char byte : digits) {
    out.append(byte == 'e' ? 'E' : byte);
  }
  return out.view();
}

std::string_view int_digits(Run& run, uint64_t value, int base, bool capitals) {
  char text[72];
  const auto end = std::to_chars(text, text + sizeof text, value, base).ptr;
  for (char* at = text; at != end; ++at) {
    *at = static_cast<char>(capitals && *at >= 'a' ? *at - 32 : *at);
  }
  return run.arena.copy({text, static_cast<size_t>(end - text)});
}

}  // namespace headrace::text::jinja
