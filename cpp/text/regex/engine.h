#pragma once

// The general engine: any pattern, by backtracking.

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "text/regex/regex.h"
#include "text/unicode/utf8.h"

namespace headrace::text {

std::shared_ptr<const Regex> compile_general(std::string_view pattern);

/// Regex::find_all, with `find(from)`.
template <class Find>
void add_all(std::string_view text, uint32_t shift, std::vector<Range>* matches, const Find& find) {
  size_t from = 0;
  std::optional<size_t> last_end;
  while (from <= text.size()) {
    const std::optional<Range> match = find(from);
    if (!match) {
      return;
    }
    if (match->begin == match->end && last_end == match->end) {
      from += from < text.size() ? utf8_size(text[from]) : 1;
      continue;
    }
    matches->push_back({shift + match->begin, shift + match->end});
    from = match->end;
    last_end = match->end;
  }
}

}  // namespace headrace::text
