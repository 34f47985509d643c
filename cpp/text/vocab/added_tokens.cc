#include "text/vocab/added_tokens.h"

#include <algorithm>

#include "base/check.h"
#include "text/unicode/properties.h"
#include "text/unicode/utf8.h"

namespace headrace::text {
namespace {

/// Where the character begins that ends at `end`.
size_t char_before(std::string_view text, size_t end) {
  do {
    --end;
  } while ((static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  return end;
}

bool has_flag_at(std::string_view text, size_t at, uint16_t flags) {
  return has_flag(next_char(text, &at), flags);
}

bool is_word_alone(std::string_view text, size_t begin, size_t end) {
  const bool before = begin > 0 && has_flag_at(text, char_before(text, begin), kRustWord);
  return !before && (end == text.size() || !has_flag_at(text, end, kRustWord));
}

size_t spaces_begin(std::string_view text, size_t least, size_t end) {
  while (end > least) {
    const size_t begin = char_before(text, end);
    if (!has_flag_at(text, begin, kSpace)) break;
    end = begin;
  }
  return end;
}

size_t spaces_end(std::string_view text, size_t begin) {
  while (begin < text.size() && has_flag_at(text, begin, kSpace)) {
    begin += utf8_size(text[begin]);
  }
  return begin;
}

}  // namespace

void AddedTokens::add(std::span<const AddedToken> tokens, const Vocabulary& vocabulary) {
  int32_t next = vocabulary.count();
  for (const AddedToken& token : tokens_) next = std::max(next, token.id + 1);
  std::unordered_map<std::string, size_t> places;
  for (size_t i = 0; i < tokens_.size(); ++i) places.emplace(tokens_[i].content, i);
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    if (token.special) special_.insert(token.content);
    AddedToken added = token;
    if (const auto known = places.find(token.content); known != places.end()) {
      added.id = tokens_[known->second].id;
      tokens_[known->second] = std::move(added);
      continue;
    }
    added.id = vocabulary.find_spelling(token.content);
    if (added.id == Vocabulary::kNoId) added.id = next++;
    places.emplace(token.content, tokens_.size());
    tokens_.push_back(std::move(added));
  }
  if (tokens_.size() > kMaxTokens) {
    throw_error(ErrorCode::kLimitExceeded, tokens_.size(), " added tokens, more than the ",
                kMaxTokens, " allowed");
  }
  if (next > Vocabulary::kMaxId + 1) {
    throw_error(ErrorCode::kLimitExceeded, "the ids of added tokens go beyond ",
                Vocabulary::kMaxId);
  }
}

void AddedTokens::build() {
  std::sort(tokens_.begin(), tokens_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  by_content_.clear();
  for (uint32_t i = 0; i < tokens_.size(); ++i) by_content_.emplace(tokens_[i].content, i);
  build_one(tokens_, false, &raw_);
  build_one(tokens_, true, &normalized_);
}

void AddedTokens::build_one(std::span<const AddedToken> tokens, bool normalized, Matcher* matcher) {
  std::vector<std::string> patterns;
  std::unordered_set<std::string_view> seen;
  matcher->tokens.clear();
  for (uint32_t i = 0; i < tokens.size(); ++i) {
    const AddedToken& token = tokens[i];
    if (token.normalized != normalized) continue;
    const std::string& pattern = normalized ? token.pattern : token.content;
    if (pattern.empty()) {
      throw_error(ErrorCode::kCorruptFile, "nothing is left of the added token \"", token.content,
                  "\" when it is normalized");
    }
    if (!seen.insert(pattern).second) {
      throw_error(ErrorCode::kUnsupported, "two added tokens are \"", pattern,
                  "\" when normalized; one of them is \"", token.content, "\"");
    }
    patterns.push_back(pattern);
    matcher->tokens.push_back(i);
  }
  if (!patterns.empty()) matcher->finder = MultiFinder(patterns);
}

const AddedToken* AddedTokens::find(int32_t id) const noexcept {
  const auto found =
      std::lower_bound(tokens_.begin(), tokens_.end(), id,
                       [](const AddedToken& token, int32_t value) { return token.id < value; });
  return found != tokens_.end() && found->id == id ? &*found : nullptr;
}

const AddedToken* AddedTokens::find(std::string_view content) const noexcept {
  const auto found = by_content_.find(content);
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

bool AddedTokens::is_special(std::string_view spelling) const noexcept {
  const AddedToken* token = find(spelling);  // all special contents are tokens
  return token != nullptr && special_.contains(token->content);
}

void AddedTokens::split(std::string_view text, bool normalized, bool special_as_text,
                        std::vector<Piece>* pieces) const {
  const Matcher& matcher = normalized ? normalized_ : raw_;
  size_t done = 0;
  size_t spaces_from = 0;  // what was last seen to be spaces: looked at once, whatever the tokens
  size_t spaces_to = 0;
  MultiFinder::Search search(matcher.finder, text);
  while (!matcher.tokens.empty()) {
    const auto found = search.next();
    if (!found) break;
    const AddedToken& token = tokens_[matcher.tokens[found->string]];
    if (special_as_text && special_.contains(token.content)) continue;
    if (token.single_word && !is_word_alone(text, found->begin, found->end)) continue;
    size_t begin = found->begin;
    size_t end = found->end;
    if (token.lstrip) begin = std::max(done, spaces_begin(text, std::min(done, begin), begin));
    if (token.rstrip) {
      if (end < spaces_from || end > spaces_to) {
        spaces_from = end;
        spaces_to = spaces_end(text, end);
      }
      end = spaces_to;
    }
    if (done < begin) pieces->push_back(Piece{done, begin, Vocabulary::kNoId});
    if (begin < end) pieces->push_back(Piece{begin, end, token.id});  // else nothing is left of it
    done = end;
  }
  if (done < text.size()) pieces->push_back(Piece{done, text.size(), Vocabulary::kNoId});
}

}  // namespace headrace::text
