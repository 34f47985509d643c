#pragma once

// A stage of k (kQuantStage) by a warp whose codes come straight to registers: what it reads of the
// weight, and its products with tokens in shared memory.

#include "cuda/kernels/quant/quant_task.cuh"

namespace headrace::cuda {

/// What a lane needs for 16 * kRowTiles features, from global memory to registers.
template <int kBits, int kRowTiles>
struct StageCodes {
  uint4 codes[kRowTiles][kBits / 4];
  uint32_t scales[kRowTiles][kStageGroups] = {}, zeros[kRowTiles][kStageGroups] = {};

  /// `tile`: of the first features.
  __device__ void load(const QuantWeightView& weight, const uint8_t* tile, int64_t stage) {
    const int lane = lane_id();
    const int64_t first = weight.groups_before(stage) * kQuantTile + lane / 4 * 2;
    HEADRACE_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      const uint8_t* from = tile + r * weight.tile_bytes;
      HEADRACE_UNROLL
      for (int v = 0; v < kBits / 4; ++v) {
        codes[r][v] = *reinterpret_cast<const uint4*>(from + stage * stage_code_bytes(kBits) +
                                                      v * kWarpVector + lane * kLaneVector);
      }
      HEADRACE_UNROLL
      for (int i = 0; i < kStageGroups; ++i) {
        if (i >= weight.stage_groups()) continue;
        const int64_t at = first + i * kQuantTile;
        scales[r][i] = *reinterpret_cast<const uint32_t*>(from + weight.scales_at + at * 2);
        if (weight.zero_points) {
          zeros[r][i] = *reinterpret_cast<const uint16_t*>(from + weight.zeros_at + at);
        }
      }
    }
  }
};

/// b of mma of 8 * kTiles tokens, for as many of a stage's steps of 16 k as come at once.
template <int kTiles>
struct StepTokens {
  static_assert(kTiles % 2 == 0);
  static constexpr int kSteps = 1;
  uint32_t b[kSteps][kTiles][2];

  /// `step`: a multiple of kSteps.
  __device__ void load(const char* tokens, int step) {
    const int lane = lane_id();
    HEADRACE_UNROLL
    for (int t = 0; t < kTiles; t += 2) {
      uint32_t two[4];
      load_matrices(two, tokens + stage_chunk_byte(8 * t + lane / 16 * 8 + lane % 8,
                                                   2 * step + lane / 8 % 2));
      HEADRACE_UNROLL
      for (int i = 0; i < 4; ++i) b[0][t + i / 2][i % 2] = two[i];
    }
  }
};

template <>
struct StepTokens<1> {
  static constexpr int kSteps = 2;
  uint32_t b[kSteps][1][2];

  __device__ void load(const char* tokens, int step) {
    uint32_t two[4];
    load_matrices(two, tokens + stage_chunk_byte(lane_id() % 8, 2 * step + lane_id() / 8));
    HEADRACE_UNROLL
    for (int i = 0; i < 4; ++i) b[i / 2][0][i % 2] = two[i];
  }
};

/// sums += the products of stage `stage` with 8 * kTokenTiles tokens, whose rows of shared memory
/// (stage_chunk_byte) begin at `tokens`, a multiple of 8 of them from where they were swizzled.
/// `zeros` stay from one stage of a unit to the next.
template <class T, int kBits, int kRowTiles, int kTokenTiles>
__device__ void multiply_quant_stage(const QuantWeightView& weight, int64_t stage,
                                     const StageCodes<kBits, kRowTiles>& held, const char* tokens,
                                     RowZeros<T, kBits> (&zeros)[kRowTiles],
                                     GroupSums<kTokenTiles> (&sums)[kRowTiles]) {
  using Tokens = StepTokens<kTokenTiles>;
  const int k0 = static_cast<int>(stage % 2) * kQuantStage;  // in the unit
  Tokens own;
  HEADRACE_UNROLL
  for (int step = 0; step < kQuantStage / 16; ++step) {
    const int k = k0 + 16 * step;
    const bool second = step >= 2 && weight.stage_groups() == 2;
    if (weight.zero_points && weight.begins_group(k)) {
      HEADRACE_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        zeros[r].set(second ? held.zeros[r][1] : held.zeros[r][0]);
      }
    }
    if (step % Tokens::kSteps == 0) own.load(tokens, step);
    HEADRACE_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      uint32_t words[kBits];
      __builtin_memcpy(words, held.codes[r], sizeof words);
      uint32_t a[4];
      codes_to_a<T, kBits>(words + step * (kBits / 4), zeros[r].low, zeros[r].high, a);
      HEADRACE_UNROLL
      for (int t = 0; t < kTokenTiles; ++t) {
        mma_16x8x16<T>(sums[r].products[t], a, own.b[step % Tokens::kSteps][t]);
      }
    }
    if (step % 2 == 1 && weight.begins_group(k + 16)) {
      HEADRACE_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        sums[r].add_group(
            scales_of(second ? held.scales[r][1] : held.scales[r][0], weight.f16_scales));
      }
    }
  }
}

}  // namespace headrace::cuda
