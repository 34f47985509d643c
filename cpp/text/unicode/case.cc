#include "text/unicode/case.h"

#include <algorithm>

#include "text/unicode/properties.h"
#include "text/unicode/tables/tables.h"
#include "text/unicode/utf8.h"

namespace headrace::text {
namespace {

constexpr uint32_t kCharMask = (1u << 21) - 1;

}  // namespace

CasedChars CaseTable::of(char32_t value) const noexcept {
  // Specials are few, and all in the tables' first plane.
  for (size_t at = 0; at < specials.size() && value >= specials[at]; at += 2 + specials[at + 1]) {
    if (value == specials[at]) {
      CasedChars result;
      result.count = specials[at + 1];
      std::copy_n(specials.begin() + static_cast<ptrdiff_t>(at) + 2, result.count,
                  result.values.begin());
      return result;
    }
  }
  size_t low = 0;
  size_t high = runs.size() / 2;
  while (low < high) {  // the first run that begins behind `value`
    const size_t middle = (low + high) / 2;
    if ((runs[2 * middle] & kCharMask) <= value) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low > 0) {
    const uint32_t run = runs[2 * low - 2];
    const uint32_t distance = value - (run & kCharMask);
    const uint32_t step = (run >> 31) + 1;
    if (distance % step == 0 && distance / step < (run >> 21 & 1023)) {
      return {{value + runs[2 * low - 1]}, 1};
    }
  }
  return {{value}, 1};
}

CasedChars lower_chars(char32_t value) noexcept {
  if (value < 0x80) {
    return {{value >= 'A' && value <= 'Z' ? value + ('a' - 'A') : value}, 1};
  }
  if ((CharTable::get().of(value).forms & kChangedByLower) == 0) {
    return {{value}, 1};
  }
  return CaseTable{{tables::kLowerRuns, tables::kLowerRunsSize},
                   {tables::kLowerSpecials, tables::kLowerSpecialsSize}}
      .of(value);
}

std::string lowered(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CasedChars chars = lower_chars(next_char(text, &at));
    for (size_t i = 0; i < chars.count; ++i) {
      append_utf8(chars.values[i], &result);
    }
  }
  return result;
}

}  // namespace headrace::text
