#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/decode/detokenizer.h"
#include "text/decode/token_decoder.h"
#include "text/json/value.h"

namespace headrace::text {

inline constexpr std::string_view kLlama = R"({"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
    {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";
inline constexpr std::string_view kByteLevel = R"({"type": "ByteLevel"})";

/// Tokens that get the ids 0, 1, ...; "<s>" and "<t>" are special, and "<added é>" is added.
inline std::shared_ptr<const TokenDecoder> decoder_of(std::string_view spec,
                                                      const std::vector<std::string>& tokens) {
  Vocabulary vocabulary(spec == kByteLevel);
  for (const std::string& token : tokens) vocabulary.add(vocabulary.end(), token);
  std::vector<AddedText> added;
  for (const char* content : {"<s>", "<t>", "<added é>"}) {
    const auto id = static_cast<int32_t>(tokens.size() + added.size());
    added.push_back({id, content, content, content[1] != 'a'});
  }
  return std::make_shared<const TokenDecoder>(vocabulary, added, make_decoder(json::parse(spec)));
}

/// The text that each push gives, and `finish`.
inline std::vector<std::string> pieces_of(const TokenDecoder& decoder,
                                          const std::vector<int32_t>& ids,
                                          const DetokenizeOptions& options = {}) {
  Detokenizer detokenizer(decoder, options);
  std::vector<std::string> pieces;
  for (const int32_t id : ids) detokenizer.push(id, &pieces.emplace_back());
  detokenizer.finish(&pieces.emplace_back());
  return pieces;
}

}  // namespace headrace::text
