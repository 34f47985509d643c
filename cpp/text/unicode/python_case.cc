#include "text/unicode/python_case.h"

#include <algorithm>
#include <utility>

#include "text/unicode/case.h"
#include "text/unicode/tables/tables.h"
#include "text/unicode/utf8.h"

namespace headrace::text {
namespace {

CaseTable lower_table() noexcept {
  return {{tables::kPyLowerRuns, tables::kPyLowerRunsSize},
          {tables::kPyLowerSpecials, tables::kPyLowerSpecialsSize}};
}
CaseTable upper_table() noexcept {
  return {{tables::kPyUpperRuns, tables::kPyUpperRunsSize},
          {tables::kPyUpperSpecials, tables::kPyUpperSpecialsSize}};
}
CaseTable title_table() noexcept {
  return {{tables::kPyTitleRuns, tables::kPyTitleRunsSize},
          {tables::kPyTitleSpecials, tables::kPyTitleSpecialsSize}};
}
CaseTable fold_table() noexcept {
  return {{tables::kPyFoldRuns, tables::kPyFoldRunsSize},
          {tables::kPyFoldSpecials, tables::kPyFoldSpecialsSize}};
}

constexpr char32_t kSigma = 0x3A3;
constexpr char32_t kSmallSigma = 0x3C3;
constexpr char32_t kFinalSigma = 0x3C2;

void append_cased(const CaseTable& table, char32_t value, std::string* out) {
  const CasedChars chars = table.of(value);
  for (size_t i = 0; i < chars.count; ++i) {
    append_utf8(chars.values[i], out);
  }
}

/// Writes lower case, and knows of each sigma whether a word ends with it. What surrounds it counts
/// in the whole text; a run of ignorable characters is looked at once.
class LowerWriter {
 public:
  LowerWriter(std::string_view text, std::string* out) : text_(text), out_(out) {}

  /// The character at [at, end) as it stands in the text, in lower case.
  void lower(char32_t value, size_t end) {
    if (value == kSigma) {
      append_utf8(after_cased_ && !before_cased(end) ? kFinalSigma : kSmallSigma, out_);
    } else {
      append_cased(lower_table(), value, out_);
    }
  }
  /// It was written, in lower case or not.
  void pass(uint16_t flags) noexcept {
    if ((flags & kPyIgnorable) == 0) {
      after_cased_ = (flags & kPyCased) != 0;
    }
  }

 private:
  bool before_cased(size_t at) noexcept {
    if (at < looked_) {
      return cased_ahead_;
    }
    while (at < text_.size()) {
      const uint16_t flags = python_flags(next_char(text_, &at));
      if ((flags & kPyIgnorable) == 0) {
        looked_ = at;
        return cased_ahead_ = (flags & kPyCased) != 0;
      }
    }
    looked_ = text_.size() + 1;
    return cased_ahead_ = false;
  }

  std::string_view text_;
  std::string* out_;
  bool after_cased_ = false;
  size_t looked_ = 0;  ///< up to here the next one that isn't ignorable is known
  bool cased_ahead_ = false;
};

std::string mapped(std::string_view text, const CaseTable& table) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    append_cased(table, next_char(text, &at), &result);
  }
  return result;
}

enum class Change { kKeep, kLower, kUpper, kTitle };

/// Every character is changed as `change_of(flags, after_cased)` says.
template <class ChangeOf>
std::string changed(std::string_view text, const ChangeOf& change_of) {
  std::string result;
  result.reserve(text.size());
  LowerWriter writer(text, &result);
  bool after_cased = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t value = next_char(text, &at);
    const uint16_t flags = python_flags(value);
    switch (change_of(flags, after_cased)) {
      case Change::kKeep:
        append_utf8(value, &result);
        break;
      case Change::kLower:
        writer.lower(value, at);
        break;
      case Change::kUpper:
        append_cased(upper_table(), value, &result);
        break;
      case Change::kTitle:
        append_cased(title_table(), value, &result);
        break;
    }
    writer.pass(flags);
    after_cased = (flags & kPyCased) != 0;
  }
  return result;
}

/// Is every cased character one of `flags`, and is there one?
bool all_cased(std::string_view text, uint16_t flags) noexcept {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const uint16_t kind = python_flags(next_char(text, &at));
    if ((kind & flags) != 0) {
      any = true;
    } else if ((kind & (kPyLower | kPyUpper | kPyTitle)) != 0) {
      return false;
    }
  }
  return any;
}

}  // namespace

uint16_t python_flags(char32_t value) noexcept {
  const uint32_t* const begin = tables::kPyRanges;
  const uint32_t* const range =
      std::upper_bound(begin, begin + tables::kPyRangesSize, value,
                       [](char32_t c, uint32_t entry) { return c < entry >> 11; });
  return range[-1] & 0x7FF;
}

std::string python_lower(std::string_view text) {
  return changed(text, [](uint16_t, bool) { return Change::kLower; });
}

std::string python_upper(std::string_view text) { return mapped(text, upper_table()); }

std::string python_casefold(std::string_view text) { return mapped(text, fold_table()); }

std::string python_title(std::string_view text) {
  return changed(text, [](uint16_t, bool after_cased) {
    return after_cased ? Change::kLower : Change::kTitle;
  });
}

std::string python_capitalize(std::string_view text) {
  bool first = true;
  return changed(text, [&first](uint16_t, bool) {
    return std::exchange(first, false) ? Change::kTitle : Change::kLower;
  });
}

std::string python_swapcase(std::string_view text) {
  return changed(text, [](uint16_t flags, bool) {
    return (flags & kPyUpper) != 0   ? Change::kLower
           : (flags & kPyLower) != 0 ? Change::kUpper
                                     : Change::kKeep;
  });
}

bool python_islower(std::string_view text) noexcept { return all_cased(text, kPyLower); }

bool python_isupper(std::string_view text) noexcept { return all_cased(text, kPyUpper); }

bool python_istitle(std::string_view text) noexcept {
  bool any = false;
  bool after_cased = false;
  for (size_t at = 0; at < text.size();) {
    const uint16_t kind = python_flags(next_char(text, &at));
    const bool starts = (kind & (kPyUpper | kPyTitle)) != 0;
    const bool lower = (kind & kPyLower) != 0;
    if ((starts && after_cased) || (lower && !after_cased)) {
      return false;
    }
    after_cased = starts || lower;
    any = any || after_cased;
  }
  return any;
}

bool python_all(std::string_view text, uint16_t flags) noexcept {
  for (size_t at = 0; at < text.size();) {
    if (!python_is(next_char(text, &at), flags)) {
      return false;
    }
  }
  return !text.empty();
}

}  // namespace headrace::text
