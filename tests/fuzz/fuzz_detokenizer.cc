// Bytes as ids, through one of some decoders, which the first byte picks.

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/fuzz_target.h"
#include "text/decode/detokenizer.h"
#include "text/decode/token_decoder.h"
#include "text/json/value.h"
#include "text/unicode/utf8.h"

namespace {

using namespace headrace::text;
using headrace::InternalError;

constexpr std::array<std::string_view, 8> kDecoders = {
    "null",
    R"({"type": "ByteLevel"})",
    R"({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})",
    R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"})",
    R"({"type": "WordPiece", "prefix": "##", "cleanup": true})",
    R"({"type": "BPEDecoder", "suffix": "</w>"})",
    R"({"type": "Sequence", "decoders": [{"type": "ByteFallback"},
        {"type": "BPEDecoder", "suffix": ""}, {"type": "ByteLevel"},
        {"type": "Strip", "content": "a", "start": 3, "stop": 0}]})",
    R"({"type": "Sequence", "decoders": [{"type": "Strip", "content": " ", "start": 1, "stop": 2},
        {"type": "Fuse"}, {"type": "Strip", "content": "a", "start": 1, "stop": 1},
        {"type": "ByteFallback"}, {"type": "ByteLevel"}]})"};

Vocabulary vocabulary(bool byte_level) {
  Vocabulary made(byte_level);
  for (const char* token : {"a", "▁b", "▁", "##c", "d</w>", ".", "Ġ", "ä½ł", "Ã", "ðŁ", "Ĭ",
                            "<0x4g>", " ", "n't", "é"}) {
    made.add(made.end(), token);
  }
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  for (size_t byte = 0x78; byte < 0x100; ++byte) {
    const std::string token = {'<', '0', 'x', kDigits[byte / 16], kDigits[byte % 16], '>'};
    made.add(made.end(), token, TokenKind::kByte);
  }
  return made;
}

std::unique_ptr<const TokenDecoder> make(size_t number) {
  const std::vector<AddedText> added = {{200, "<s>", "<s>", true}, {201, "é ", "e", false}};
  if (number == kDecoders.size()) {
    return std::make_unique<const TokenDecoder>(vocabulary(false), added, PieceRules{});
  }
  const std::string_view spec = kDecoders.at(number);
  return std::make_unique<const TokenDecoder>(vocabulary(number == 1), added,
                                              make_decoder(json::parse(spec)));
}

const TokenDecoder& decoder(size_t number) {
  static std::array<std::unique_ptr<const TokenDecoder>, kDecoders.size() + 1> made;
  if (made[number] == nullptr) made[number] = make(number);
  return *made[number];
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return headrace::refuse_or_accept([&] {
    if (size == 0 || size > 4096) return;
    const TokenDecoder& tokens = decoder(data[0] % (kDecoders.size() + 1));
    const bool skip_special = data[0] >= 0x80;
    const std::vector<int32_t> ids(data + 1, data + size);
    Detokenizer detokenizer(tokens, {.skip_special = skip_special, .shown = {}, .after = {}});
    std::string text;
    for (const int32_t id : ids) {
      detokenizer.push(id, &text);
      if (invalid_utf8_at(text) != kValid) throw InternalError("half a character");
    }
    const bool holding = detokenizer.holding();
    const size_t settled = text.size();
    detokenizer.finish(&text);
    if (!holding && text.size() != settled) throw InternalError("text that wasn't held");
    if (text != tokens.decode(ids, skip_special)) throw InternalError("not what decode gives");
  });
}
