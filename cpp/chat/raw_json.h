#pragma once

// JSON of callers as the text that it is: what no one needs to look into goes on unchanged, every
// digit of its numbers included.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/json/scanner.h"
#include "text/unicode/utf8.h"

namespace headrace::chat {

/// One valid JSON value without space around it, a view of the caller's text.
using Raw = std::string_view;

/// Throws Error that begins with `what`: kInvalidArgument for what is no JSON, kLimitExceeded for
/// more than `max_bytes`, and for more than `max_depth` levels.
Raw checked_json(std::string_view text, std::string_view what, size_t max_bytes, int max_depth);
/// Nothing if it is no JSON, or deeper.
std::optional<Raw> json_in(std::string_view text, int max_depth);

using Kind = text::json::Scanner::Next;
Kind kind_of(Raw value);
inline bool is_null(Raw value) { return kind_of(value) == Kind::kNull; }

struct Member {
  std::string name;
  Raw value;
};
/// Of one name the last counts, as for Python.
struct Members {
  std::vector<Member> all;

  /// Null if there is none.
  const Raw* find(std::string_view name) const noexcept;
  /// It, unless it is missing or of another kind.
  const Raw* find(std::string_view name, Kind kind) const noexcept;
};

/// REQUIRES: an object.
Members members_of(Raw object);
/// REQUIRES: a list.
std::vector<Raw> items_of(Raw list);
/// The text of a string. REQUIRES: a string.
std::string text_of(Raw string);
/// A string without its quotes, still escaped. REQUIRES: a string.
inline std::string_view inside(Raw string) { return string.substr(1, string.size() - 2); }

/// Appends `"name": ` to an object that `out` ends with, behind a comma if it has members already.
void append_key(std::string_view name, std::string* out);

/// For a message: at most a few words of what was given.
inline std::string shown(Raw value) { return text::shortened(value, 60); }

}  // namespace headrace::chat
