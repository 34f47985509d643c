// Bytes as stop strings and as a text in pieces, against a search that tries every string at every
// place. The first byte of the input says how many strings there are; 0xFF ends strings and pieces.

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/fuzz_target.h"
#include "text/match/multi_finder.h"
#include "text/stop/stop_strings.h"

namespace {

using headrace::InternalError;
using headrace::text::MultiFinder;

using Strings = std::vector<std::string>;

Strings split(std::string_view data) {
  Strings parts(1);
  for (const char byte : data) {
    if (byte == '\xFF') {
      parts.emplace_back();
    } else {
      parts.back() += byte;
    }
  }
  return parts;
}

/// The end of the first string to end, and how long it is; 0, 0: there is none.
std::pair<size_t, size_t> naive_match(std::string_view text, const Strings& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return {end, longest};
  }
  return {0, 0};
}

void check_stops(const Strings& stops, const Strings& pieces) {
  headrace::text::StopText text(headrace::StopStrings(std::span<const std::string>(stops)), false);
  std::string whole;
  std::string out;
  for (const std::string& piece : pieces) {
    whole += piece;
    text.push(piece, true, &out);
    const auto [end, size] = naive_match(whole, stops);
    if (text.match().has_value() != (size > 0)) throw InternalError("a match more or less");
    if (!whole.starts_with(out)) throw InternalError("text that never came");
    if (size == 0) continue;
    if (text.match()->end != end || text.match()->string.size() != size ||
        out.size() != end - size) {
      throw InternalError("a match at the wrong place");
    }
    return;
  }
  text.finish("", true, &out);
  if (out != whole) throw InternalError("text is missing");
}

void check_finder(const Strings& strings, std::string_view text) {
  const MultiFinder finder(strings);
  MultiFinder::Search search(finder, text);
  for (size_t at = 0; at < text.size();) {
    size_t longest = 0;
    for (const std::string& string : strings) {
      if (text.substr(at).starts_with(string)) longest = std::max(longest, string.size());
    }
    if (longest > 0) {
      const auto found = search.next();
      if (!found || found->begin != at || found->end != at + longest) {
        throw InternalError("another string was found");
      }
    }
    at += std::max<size_t>(longest, 1);
  }
  if (search.next()) throw InternalError("a string was found that isn't there");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return headrace::refuse_or_accept([&] {
    if (size < 2 || size > 4096) return;
    Strings parts = split(headrace::as_text(data + 1, size - 1));
    const size_t count = std::min<size_t>(1 + data[0] % 8, parts.size());
    const auto first_piece = parts.begin() + static_cast<std::ptrdiff_t>(count);
    const Strings stops(parts.begin(), first_piece);
    const Strings pieces(first_piece, parts.end());
    for (const std::string& stop : stops) {
      if (stop.empty()) return;
    }
    std::string text;
    for (const std::string& piece : pieces) text += piece;
    check_finder(stops, text);
    check_stops(stops, pieces);
  });
}
