#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace headrace {

/// What a file says, for a message: in quotes, cut to 64 bytes, what isn't printable ASCII as "?".
inline std::string in_marks(std::string_view text) {
  constexpr size_t kShownBytes = 64;
  std::string shown(text.substr(0, kShownBytes));
  std::ranges::replace_if(shown, [](char c) { return c < ' ' || c > '~'; }, '?');
  return '"' + shown + (text.size() > kShownBytes ? "...\"" : "\"");
}

}  // namespace headrace
