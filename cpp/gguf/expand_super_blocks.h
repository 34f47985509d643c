#pragma once

// Blocks of 256 numbers, whose groups have scales of few bits. Each writes 256 numbers.

#include <cstdint>

namespace headrace {

void expand_q2_k(const uint8_t* block, float* out) noexcept;
void expand_q3_k(const uint8_t* block, float* out) noexcept;
void expand_q4_k(const uint8_t* block, float* out) noexcept;
void expand_q5_k(const uint8_t* block, float* out) noexcept;
void expand_q6_k(const uint8_t* block, float* out) noexcept;
void expand_iq4_xs(const uint8_t* block, float* out) noexcept;

}  // namespace headrace
