#include "grammar/schema/numbers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace headrace::grammar {

namespace {

constexpr double kWholeBelow = 9007199254740992.0;  // 2^53: digits of more are not the number's

/// A decimal number, cut at its point. No zeros that say nothing; 0 is "0".
struct Decimal {
  bool negative = false;
  std::string whole;
  std::string decimals;

  bool is_zero() const { return whole == "0" && decimals.empty(); }
};

Decimal decimal(const Value& number) {
  std::string digits = number_text(number);
  Decimal out;
  out.negative = digits.starts_with('-');
  if (out.negative) digits.erase(0, 1);
  const size_t point = std::min(digits.find('.'), digits.size());
  out.whole = digits.substr(0, point);
  if (point < digits.size()) out.decimals = digits.substr(point + 1);
  while (out.decimals.ends_with('0')) out.decimals.pop_back();
  if (out.is_zero()) out.negative = false;
  return out;
}

/// Digits and ranges of numbers without a sign, as expressions.
class Magnitudes {
 public:
  Magnitudes(Expressions* expressions, bool integers)
      : e_(*expressions),
        integers_(integers),
        digits_(e_.star(digit('0', '9'))),
        whole_(e_.choice({e_.byte('0'), e_.concat(digit('1', '9'), digits_)})),
        fraction_(integers
                      ? kEmpty
                      : e_.optional(e_.concat(e_.byte('.'), e_.concat(digit('0', '9'), digits_)))) {
  }

  Expr any() { return e_.concat(whole_, fraction_); }

  /// At least x, or more than x.
  Expr from(const Decimal& x, bool more) {
    const bool cut = integers_ && !x.decimals.empty();  // the next whole number is what counts
    Expr above =
        e_.concat({digit('1', '9'), e_.repeat(digit('0', '9'), size(x), kUnbounded), fraction_});
    above = e_.choice({above, e_.concat(same_size(x.whole, true), fraction_)});
    Expr same = kNothing;
    if (integers_) {
      same = more || cut ? kNothing : kEmpty;
    } else if (x.decimals.empty()) {
      same = more ? e_.concat({e_.byte('.'), digits_, digit('1', '9')}) : fraction_;
    } else {
      same = e_.concat(e_.byte('.'), decimals_from(x.decimals, more));
    }
    return e_.choice({above, e_.concat(e_.literal(x.whole), same)});
  }

  /// At most x, or less than x.
  Expr to(const Decimal& x, bool less) {
    const bool cut = !x.decimals.empty();
    std::vector<Expr> parts = {e_.concat(same_size(x.whole, false), fraction_)};
    if (size(x) > 1) {
      parts.push_back(e_.concat(e_.byte('0'), fraction_));
      parts.push_back(
          e_.concat({digit('1', '9'), e_.repeat(digit('0', '9'), 0, size(x) - 2), fraction_}));
    }
    std::vector<Expr> same;
    if (!less || cut) same.push_back(kEmpty);
    if (!integers_ && !cut && !less) {
      const Expr zeros = e_.repeat(e_.byte('0'), 1, kUnbounded);
      same.push_back(e_.concat(e_.byte('.'), zeros));
    }
    if (!integers_ && cut) same.push_back(e_.concat(e_.byte('.'), decimals_to(x.decimals, less)));
    parts.push_back(e_.concat(e_.literal(x.whole), e_.choice(std::move(same))));
    return e_.choice(std::move(parts));
  }

 private:
  static uint32_t size(const Decimal& x) { return static_cast<uint32_t>(x.whole.size()); }

  Expr digit(char first, char last) {
    return first > last
               ? kNothing
               : e_.bytes(ByteSet::range(static_cast<uint8_t>(first), static_cast<uint8_t>(last)));
  }

  /// Whole numbers of as many digits that are larger, or smaller.
  Expr same_size(const std::string& whole, bool larger) {
    Expr out = kNothing;
    for (size_t i = whole.size(); i-- > 0;) {
      const char lowest = i == 0 && whole.size() > 1 ? '1' : '0';
      const Expr other = larger ? digit(static_cast<char>(whole[i] + 1), '9')
                                : digit(lowest, static_cast<char>(whole[i] - 1));
      const auto left = static_cast<uint32_t>(whole.size() - 1 - i);
      out = e_.choice({e_.concat(other, e_.repeat(digit('0', '9'), left, left)),
                       e_.concat(e_.byte(static_cast<uint8_t>(whole[i])), out)});
    }
    return out;
  }

  Expr decimals_from(const std::string& decimals, bool more) {
    Expr out = more ? e_.concat(digits_, digit('1', '9')) : digits_;
    for (size_t i = decimals.size(); i-- > 0;) {
      const Expr larger = digit(static_cast<char>(decimals[i] + 1), '9');
      out = e_.choice(
          {e_.concat(larger, digits_), e_.concat(e_.byte(static_cast<uint8_t>(decimals[i])), out)});
    }
    return out;
  }

  Expr decimals_to(const std::string& decimals, bool less) {
    Expr out = less ? kNothing : kEmpty;
    for (size_t i = decimals.size(); i-- > 0;) {
      const Expr smaller = digit('0', static_cast<char>(decimals[i] - 1));
      std::vector<Expr> parts = {e_.concat(smaller, digits_),
                                 e_.concat(e_.byte(static_cast<uint8_t>(decimals[i])), out)};
      if (i > 0) parts.push_back(kEmpty);  // fewer digits are less
      out = e_.choice(std::move(parts));
    }
    return out;
  }

  Expressions& e_;
  const bool integers_;
  const Expr digits_;
  const Expr whole_;
  const Expr fraction_;
};

class Numbers {
 public:
  Numbers(Expressions* expressions, bool integers)
      : e_(*expressions), integers_(integers), magnitudes_(expressions, integers) {}

  Expr any() {
    Expr out = magnitudes_.any();
    if (!integers_) {
      const Expr digits = e_.repeat(e_.bytes(ByteSet::range('0', '9')), 1, kUnbounded);
      const Expr sign = e_.optional(e_.bytes(ByteSet::of('+') | ByteSet::of('-')));
      const Expr mark = e_.bytes(ByteSet::of('e') | ByteSet::of('E'));
      out = e_.concat(out, e_.optional(e_.concat({mark, sign, digits})));
    }
    return e_.concat(e_.optional(e_.byte('-')), out);
  }

  Expr from(const Decimal& x, bool more) {
    if (!x.negative) return x.is_zero() && !more ? magnitudes_.any() : magnitudes_.from(x, more);
    return e_.choice({magnitudes_.any(), minus(magnitudes_.to(x, more))});
  }

  Expr to(const Decimal& x, bool less) {
    if (x.negative) return minus(magnitudes_.from(x, less));
    if (x.is_zero() && less) return minus(magnitudes_.from(x, true));
    return e_.choice({minus(magnitudes_.any()), magnitudes_.to(x, less)});
  }

  Expr multiple_of(uint32_t modulus, uint32_t decimals) {
    return e_.concat(e_.optional(e_.byte('-')), e_.multiple_of(modulus, decimals));
  }

 private:
  Expr minus(Expr magnitude) { return e_.concat(e_.byte('-'), magnitude); }

  Expressions& e_;
  bool integers_;
  Magnitudes magnitudes_;
};

Expr multiples(const SchemaText& text, const Value& schema, const Value& number, Numbers* numbers) {
  constexpr size_t kMostDigits = 9;
  constexpr size_t kMostDecimals = 20;
  const Decimal x = decimal(number);
  if (x.negative || x.is_zero()) text.wrong(schema, "multipleOf", "must be more than 0");
  std::string digits = x.whole + x.decimals;
  digits.erase(0, digits.find_first_not_of('0'));
  if (digits.size() > kMostDigits || x.decimals.size() > kMostDecimals) {
    text.unsupported(schema, "multipleOf", "has more than 9 digits");
  }
  uint32_t modulus = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), modulus);
  return numbers->multiple_of(modulus, static_cast<uint32_t>(x.decimals.size()));
}

}  // namespace

std::string number_text(const Value& number) {
  if (number.integer() != nullptr) return std::to_string(*number.integer());
  const double value = *number.real();
  if (value == 0) return "0";
  if (value == std::floor(value) && std::abs(value) < kWholeBelow) {
    return std::to_string(static_cast<int64_t>(value));
  }
  std::array<char, 400> digits{};
  const auto end =
      std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed);
  return {digits.data(), end.ptr};
}

Expr number_expression(const SchemaText& text, const Schemas& schemas, bool integers,
                       Expressions* expressions) {
  struct Bound {
    const char* keyword;
    bool is_least;
    bool is_strict;
  };
  constexpr std::array kBounds = {Bound{"minimum", true, false}, Bound{"maximum", false, false},
                                  Bound{"exclusiveMinimum", true, true},
                                  Bound{"exclusiveMaximum", false, true}};
  Numbers numbers(expressions, integers);
  std::vector<Expr> parts = {numbers.any()};
  for (const Value* const schema : schemas) {
    const auto number = [&](const char* keyword) {
      const Value* const found = schema->find(keyword);
      if (found != nullptr && found->integer() == nullptr && found->real() == nullptr) {
        text.wrong(*schema, keyword, "must be a number");
      }
      return found;
    };
    for (const Bound& bound : kBounds) {
      const Value* const found = number(bound.keyword);
      if (found == nullptr) continue;
      const Decimal x = decimal(*found);
      parts.push_back(bound.is_least ? numbers.from(x, bound.is_strict)
                                     : numbers.to(x, bound.is_strict));
    }
    if (const Value* const found = number("multipleOf")) {
      parts.push_back(multiples(text, *schema, *found, &numbers));
    }
  }
  return expressions->both(std::move(parts));
}

}  // namespace headrace::grammar
