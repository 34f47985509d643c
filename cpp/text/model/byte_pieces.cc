#include "text/model/byte_pieces.h"

#include <algorithm>
#include <cstddef>

namespace headrace::text {

std::array<int32_t, 256> byte_piece_ids(const Vocabulary& vocabulary) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::array<int32_t, 256> ids{};
  for (size_t byte = 0; byte < ids.size(); ++byte) {
    const std::array<char, 6> piece = {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
    ids[byte] = vocabulary.find_spelling({piece.data(), piece.size()});
  }
  return ids;
}

bool append_byte_pieces(std::string_view text, Range range, const std::array<int32_t, 256>& ids,
                        std::vector<Token>* tokens) {
  const auto id = [&](char byte) { return ids[static_cast<uint8_t>(byte)]; };
  if (std::any_of(text.begin(), text.end(),
                  [&](char byte) { return id(byte) == Vocabulary::kNoId; })) {
    return false;
  }
  for (const char byte : text) {
    tokens->push_back({id(byte), range});
  }
  return true;
}

}  // namespace headrace::text
