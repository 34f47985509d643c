#include "text/unicode/normal_forms.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <span>

#include "text/unicode/decompositions.h"
#include "text/unicode/properties.h"
#include "text/unicode/utf8.h"

namespace headrace::text {
namespace {

constexpr bool is_compatible(NormalForm form) noexcept {
  return form == NormalForm::kNfkc || form == NormalForm::kNfkd;
}

constexpr bool is_composed(NormalForm form) noexcept {
  return form == NormalForm::kNfc || form == NormalForm::kNfkc;
}

constexpr uint8_t changing(NormalForm form) noexcept {
  switch (form) {
    case NormalForm::kNfc:
      return kChangedByNfc;
    case NormalForm::kNfkc:
      return kChangedByNfkc;
    case NormalForm::kNfd:
      return kDecomposes;
    default:
      return kDecomposesCompat;
  }
}

/// The start of the first character at or behind `at` that nothing in front of it can change and
/// that changes nothing in front of it.
size_t next_boundary(std::string_view text, size_t at, uint8_t change,
                     const CharTable& table) noexcept {
  while (at < text.size()) {
    size_t next = at;
    const CharClass& kind = table.of(next_char(text, &next));
    if (kind.combining == 0 && (kind.forms & change) == 0) {
      break;
    }
    at = next;
  }
  return at;
}

/// Sorts a long run of marks in linear time: by counting their classes.
void count_sort(std::span<FormChar> marks) {
  const std::vector<FormChar> old(marks.begin(), marks.end());
  std::array<size_t, 256> places{};
  for (const FormChar& c : old) {
    ++places[c.combining];
  }
  std::exclusive_scan(places.begin(), places.end(), places.begin(), size_t{0});
  for (const FormChar& c : old) {
    marks[places[c.combining]++] = c;
  }
}

/// Marks in the order of their classes, those of one class as they were.
void order_marks(std::vector<FormChar>* chars) {
  constexpr ptrdiff_t kShort = 32;  // most runs are of one or two
  const auto lower = [](const FormChar& a, const FormChar& b) { return a.combining < b.combining; };
  const auto is_mark = [](const FormChar& c) { return c.combining != 0; };
  auto begin = chars->begin();
  while ((begin = std::find_if(begin, chars->end(), is_mark)) != chars->end()) {
    const auto end = std::find_if_not(begin, chars->end(), is_mark);
    if (end - begin > kShort) {
      count_sort({begin, end});
    } else {
      for (auto i = begin + 1; i < end; ++i) {
        std::rotate(std::upper_bound(begin, i, *i, lower), i, i + 1);
      }
    }
    begin = end;
  }
}

/// Composes in place.
void compose_all(std::vector<FormChar>* chars) {
  size_t out = 0;
  std::optional<size_t> starter;
  int last = -1;  // the class of the last mark behind the starter that stayed; -1: there is none
  for (const FormChar c : *chars) {
    if (starter && last < static_cast<int>(c.combining)) {
      FormChar& first = (*chars)[*starter];
      if (const char32_t composed = Decompositions::get().compose(first.value, c.value)) {
        first.value = composed;
        first.change += c.change - 1;
        continue;
      }
    }
    if (c.combining == 0) {
      starter = out;
      last = -1;
    } else if (starter) {
      last = c.combining;
    }
    (*chars)[out++] = c;
  }
  chars->resize(out);
}

}  // namespace

FormSpan next_abnormal(std::string_view text, size_t from, NormalForm form) noexcept {
  const CharTable& table = CharTable::get();
  const uint8_t change = changing(form);
  size_t boundary = from;
  uint8_t last = 0;
  for (size_t at = from; at < text.size();) {
    const size_t here = at;
    if (static_cast<uint8_t>(text[at]) < 0x80) {  // never changed alone
      at = ascii_end(text, at);
      boundary = at - 1;
      last = 0;
      continue;
    }
    const CharClass& kind = table.of(next_char(text, &at));
    if ((kind.forms & change) == 0 && kind.combining >= last) {
      last = kind.combining;
      boundary = last == 0 ? here : boundary;
    } else if ((kind.forms & change) == 0 && kind.combining == 0) {
      last = 0;
      boundary = here;
    } else {
      return {boundary, next_boundary(text, at, change, table)};
    }
  }
  return {text.size(), text.size()};
}

void normalize_span(std::string_view span, NormalForm form, std::vector<FormChar>* chars) {
  const Decompositions& table = Decompositions::get();
  const CharTable& classes = CharTable::get();
  chars->clear();
  for (size_t at = 0; at < span.size();) {
    const DecomposedChars parts = table.decompose(next_char(span, &at), is_compatible(form));
    for (size_t i = 0; i < parts.count; ++i) {
      const char32_t value = parts.values[i];
      chars->push_back({value, classes.of(value).combining, i > 0});
    }
  }
  order_marks(chars);
  if (is_composed(form)) {
    compose_all(chars);
  }
}

std::string normalized(std::string_view text, NormalForm form) {
  std::string result;
  std::vector<FormChar> chars;
  for (size_t done = 0; done < text.size();) {
    const FormSpan span = next_abnormal(text, done, form);
    result.append(text, done, span.begin - done);
    normalize_span(text.substr(span.begin, span.end - span.begin), form, &chars);
    for (const FormChar& c : chars) {
      append_utf8(c.value, &result);
    }
    done = span.end;
  }
  return result;
}

}  // namespace headrace::text
