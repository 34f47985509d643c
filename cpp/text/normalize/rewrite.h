#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "text/fuel.h"
#include "text/normalize/normal_text.h"
#include "text/unicode/utf8.h"

namespace headrace::text {

/// For a pass over so many bytes.
inline void charge(size_t bytes, Fuel* fuel) { fuel->spend(1 + bytes / 16); }

/// Changes single characters: `change(value, bytes, out)` says whether one changes, and appends
/// what takes its place to `out`, which may be nothing. Each comes from what its character came
/// from. A text that doesn't change isn't copied.
template <class Change>
void rewrite(NormalText* text, Fuel* fuel, const Change& change) {
  charge(text->size(), fuel);
  const std::string_view view = text->view();
  std::string out;
  size_t begin = 0;
  size_t at = 0;
  const auto next_change = [&] {
    while (at < view.size()) {
      begin = at;
      const char32_t value = next_char(view, &at);
      if (change(value, view.substr(begin, at - begin), &out)) {
        return true;
      }
    }
    return false;
  };
  if (!next_change()) {
    return;
  }
  NormalText::Writer writer(*text);
  size_t done = 0;
  do {
    writer.keep(done, begin);
    writer.put_as(out, begin);
    out.clear();
    done = at;
  } while (next_change());
  writer.keep(done, view.size());
  text->replace_by(std::move(writer));
}

}  // namespace headrace::text
