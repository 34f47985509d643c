#pragma once

// Tokens of single bytes, "<0x00>" to "<0xFF>", which spell what has no token.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/model/model.h"
#include "text/vocab/vocabulary.h"

namespace headrace::text {

/// The id of each byte's token, Vocabulary::kNoId where there is none.
std::array<int32_t, 256> byte_piece_ids(const Vocabulary& vocabulary);

/// Appends the tokens of each byte of `text`, all of the range; false, and nothing is appended, if
/// one has no token.
bool append_byte_pieces(std::string_view text, Range range, const std::array<int32_t, 256>& ids,
                        std::vector<Token>* tokens);

}  // namespace headrace::text
