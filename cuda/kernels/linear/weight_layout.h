#pragma once

// How a linear's weight [n, k] lies in device memory: row-major in its storage dtype, both sides
// padded with zeros so that kernels read whole tiles. Gate and up of a gated feed-forward alternate
// in groups of 8 rows, so that the thread that computes an output's gate has its up too (rows r and
// r + 8 of a tensor core's tile).

#include <cstdint>

namespace headrace::cuda {

inline constexpr int64_t kWeightRowUnit = 64;
inline constexpr int64_t kWeightColUnit = 64;
inline constexpr int64_t kGateUpGroup = 8;

struct WeightLayout {
  int64_t n = 0;  ///< with gate_up: of gate and up together, even
  int64_t k = 0;
  bool gate_up = false;

  /// Elements between rows.
  constexpr int64_t stride() const { return round(k, kWeightColUnit); }
  constexpr int64_t stored_rows() const {
    return gate_up ? 2 * round(n / 2, kWeightRowUnit / 2) : round(n, kWeightRowUnit);
  }
  /// Where row `i` (gate's rows, then up's) is stored.
  constexpr int64_t stored_row(int64_t i) const {
    if (!gate_up) return i;
    const int64_t half = n / 2, part = i / half, j = i % half;
    return j / kGateUpGroup * 2 * kGateUpGroup + part * kGateUpGroup + j % kGateUpGroup;
  }
  constexpr int64_t elements() const { return stored_rows() * stride(); }

 private:
  static constexpr int64_t round(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }
};

}  // namespace headrace::cuda
