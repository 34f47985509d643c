#include "text/decode/stage.h"

#include <algorithm>
#include <utility>

#include "text/unicode/utf8.h"
#include "text/vocab/byte_alphabet.h"

namespace headrace::text {

namespace {

/// Every `pattern` by `content`. An empty pattern is between any two characters, and at both ends.
void replace_all(std::string_view pattern, std::string_view content, std::string* text) {
  size_t found = text->find(pattern);
  if (found == std::string::npos) return;
  std::string out;
  size_t at = 0;
  while (found != std::string::npos) {
    out.append(*text, at, found - at).append(content);
    at = found + pattern.size();
    size_t next = at;
    if (pattern.empty() && at < text->size()) next += utf8_size((*text)[at]);
    found = pattern.empty() && at == text->size() ? std::string::npos : text->find(pattern, next);
  }
  out.append(*text, at, std::string::npos);
  *text = std::move(out);
}

void strip(const Stage& stage, std::string* token) {
  const std::string& mark = stage.pattern;
  size_t low = 0;
  for (size_t i = 0; i < stage.start && token->compare(low, mark.size(), mark) == 0; ++i) {
    low += mark.size();
  }
  size_t high = token->size();
  for (size_t i = 0; i < stage.stop && high - low >= mark.size(); ++i) {
    if (token->compare(high - mark.size(), mark.size(), mark) != 0) break;
    high -= mark.size();
  }
  token->resize(high);
  token->erase(0, low);
}

void clean_up(std::string* text) {
  constexpr std::pair<std::string_view, std::string_view> kCleanups[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  // Hardly any token has one of them.
  const auto begins_at = [&](size_t at) {
    return std::ranges::any_of(kCleanups, [&](const auto& cleanup) {
      return text->compare(at, cleanup.first.size(), cleanup.first) == 0;
    });
  };
  size_t at = text->find(' ');
  while (at != std::string::npos && !begins_at(at)) at = text->find(' ', at + 1);
  if (at == std::string::npos) return;
  for (const auto& [old, now] : kCleanups) replace_all(old, now, text);
}

void join_word_piece(const Stage& stage, bool first, std::string* token) {
  if (!first) {
    if (token->starts_with(stage.pattern)) {
      token->erase(0, stage.pattern.size());
    } else {
      token->insert(0, 1, ' ');
    }
  }
  if (stage.cleanup) clean_up(token);
}

void normalize(const Stage& stage, std::string* token) {
  constexpr uint64_t kSteps = 1u << 20;
  Fuel fuel(kSteps + 64 * token->size(), "decoding this text");
  NormalText text(*token, 0, /*tracked=*/false);
  stage.normalizer->apply(&text, &fuel);
  token->assign(text.view());
}

void to_bytes(std::string* token) {
  std::string bytes;
  if (append_alphabet_bytes(*token, &bytes)) *token = std::move(bytes);
}

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

int byte_of(std::string_view token) noexcept {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  // Two hexadecimal digits, or a plus sign and one, as Rust's integer parser takes them.
  const int high = token[3] == '+' ? 0 : hex_digit(token[3]);
  const int low = hex_digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

void apply_stage(const Stage& stage, bool first, bool last, std::string* token) {
  switch (stage.kind) {
    case StageKind::kReplace:
      if (!token->empty()) replace_all(stage.pattern, stage.content, token);
      break;
    case StageKind::kNormalize:
      normalize(stage, token);
      break;
    case StageKind::kStrip:
    case StageKind::kStripStart:
      strip(stage, token);
      break;
    case StageKind::kMetaspace:
      replace_all(stage.pattern, first && stage.start_rule ? "" : " ", token);
      break;
    case StageKind::kWordPiece:
      join_word_piece(stage, first, token);
      break;
    case StageKind::kSpaces:
      if (!first) token->insert(0, 1, ' ');
      break;
    case StageKind::kSuffix:
      replace_all(stage.pattern, last ? "" : " ", token);
      break;
    case StageKind::kByteLevel:
      to_bytes(token);
      break;
    case StageKind::kByteFallback:
      if (const int byte = byte_of(*token); byte >= 0) {
        token->assign(1, static_cast<char>(byte));
        if (byte >= 0x80) *token = kReplacementText;
      }
      break;
    case StageKind::kUtf8: {
      std::string text;
      if (append_lossy(*token, &text) < token->size()) text += kReplacementText;
      *token = std::move(text);
      break;
    }
  }
}

}  // namespace headrace::text
