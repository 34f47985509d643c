#include "text/stop/stop_strings.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"
#include "text/stop/stop_set.h"
#include "text/unicode/utf8.h"

namespace headrace {

StopStrings::StopStrings(std::span<const std::string> strings) {
  for (const std::string& string : strings) {
    if (string.empty()) {
      throw_error(ErrorCode::kInvalidArgument, "a stop string must not be empty");
    }
    if (text::invalid_utf8_at(string) != text::kValid) {
      throw_error(ErrorCode::kInvalidArgument, "a stop string must be UTF-8; its byte ",
                  text::invalid_utf8_at(string), " is not");
    }
  }
  set_ = std::make_shared<const Set>(strings);
}

namespace text {

namespace {

size_t chars_of(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, std::not_fn(utf8_continues)));
}

}  // namespace

std::optional<StopMatch> StopScanner::scan(std::string_view text, bool may_stop) {
  const MultiMatch& automaton = strings_->automaton;
  uint32_t state = state_;
  for (size_t i = 0; i < text.size(); ++i) {
    state = automaton.step(state, text[i]);
    const uint32_t found = automaton.longest_at(state);
    if (found == MultiMatch::kNone || !may_stop) continue;
    const std::string& string = strings_->strings[found];
    const size_t end = length_ + i + 1;
    const size_t end_char = chars_ + chars_of(text.substr(0, i + 1));
    return StopMatch{.string = string,
                     .start = end - string.size(),
                     .end = end,
                     .start_char = end_char - chars_of(string),
                     .end_char = end_char};
  }
  state_ = state;
  length_ += text.size();
  chars_ += chars_of(text);
  held_ = automaton.held(state);
  return std::nullopt;
}

StopText::StopText(const StopStrings& strings, bool keeps_string)
    : scanner_(strings.set()), keeps_string_(keeps_string) {}

void StopText::push(std::string_view text, bool may_stop, std::string* out) {
  held_ += text;
  length_ += text.size();
  match_ = scanner_.scan(text, may_stop);
  take(match_ ? end() : scanner_.settled(), out);
}

void StopText::finish(std::string_view text, bool may_stop, std::string* out) {
  push(text, may_stop, out);
  if (!match_) take(length_, out);
}

void StopText::take(size_t end, std::string* out) {
  if (end <= settled()) return;
  const size_t count = end - settled();
  out->append(held_, 0, count);
  held_.erase(0, count);
}

}  // namespace text

}  // namespace headrace
