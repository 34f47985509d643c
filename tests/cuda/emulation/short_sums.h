#pragma once

// Sums of products of e4m3 as Hopper's tensor cores make them, bit by bit: of all that
// benchmarks/cuda/float8/float8_probe.cc asked an H100.

#include <cstdint>

namespace headrace::emulation {

/// Sums of e4m3 on Hopper's tensor cores. An instruction aligns its 32 products and the accumulator
/// to the largest exponent among them, where a product's is the sum of its factors' (a subnormal
/// factor's is -6). Of each it cuts, towards zero, what lies more than kShortBits bits below that
/// exponent, adds what is left exactly, and cuts the sum's fraction to kShortBits bits.
inline constexpr int kShortBits = 13;
inline constexpr int kShortDepth = 32;

/// start + the sum of a[k] . b[k], k < 32. NaN for codes that are NaN.
float add_short(const uint8_t* a, const uint8_t* b, float start);

/// A chain of instructions from 0: codes behind `count` are zero.
float sum_short(const uint8_t* a, const uint8_t* b, int count);

/// Of rows of codes a [rows][32], b [n][32]: sums [rows][n] become what add_short() makes of them;
/// or, without `keep`, of 0.
void add_short_matrix(const uint8_t* a, const uint8_t* b, int rows, int n, bool keep, float* sums);

}  // namespace headrace::emulation
