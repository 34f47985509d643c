#pragma once

// The kernels behind linear(); linear.cu chooses. Those for 16-bit elements give the same bits.

#include "cuda/kernels/linear/linear.h"

namespace headrace::cuda {

/// float32, any number of rows.
void linear_f32(const LinearArgs& args, Stream stream);

/// 16-bit, up to kMaxSkinnyRows rows: each warp streams 16 rows of the weight past its tokens.
inline constexpr int64_t kMaxSkinnyRows = 16;
void linear_skinny(const LinearArgs& args, Stream stream);

/// 16-bit, any number of rows: tiles by mma.sync.
void linear_tiles(const LinearArgs& args, Stream stream);

/// May wgmma's kernels take these? (Rows are aligned to 16 bytes, sizes fit tensor copies.)
bool can_use_wgmma(const LinearArgs& args);

/// 16-bit, up to kMaxStreamRows rows: a block has 64 features, or 32, and all tokens.
/// REQUIRES: can_use_wgmma(args).
inline constexpr int64_t kMaxStreamRows = 64;
void linear_stream(const LinearArgs& args, Stream stream);

/// 16-bit, any number of rows: a block has one of the plan's tiles, 64 features x 64 or 128 rows.
/// REQUIRES: can_use_wgmma(args).
void linear_stream_tiles(const LinearArgs& args, const LinearPlan& plan, Stream stream);

/// Likewise of 128 rows x 128 to 256 features; as many blocks as there is room for take tiles in
/// turn. REQUIRES: wgmma_takes_gate(args), too.
void linear_wgmma(const LinearArgs& args, const LinearPlan& plan, const ClusterRoom& room,
                  Stream stream);

/// Of gates, linear_wgmma() has SiLU alone: sums hold nearly all of a thread's registers, and what
/// the other gates compute would spill. With many rows those go by linear_tiles().
inline bool wgmma_takes_gate(const LinearArgs& args) {
  const GateSpec& gate = args.gate;
  const bool is_silu =
      gate.activation == Activation::kSilu && gate.limit == 0.0f && gate.factor == 1.0f;
  return !args.gate_mul || is_silu;
}

/// Of the current device, which has so many multiprocessors; its driver knows the rest.
ClusterRoom cluster_room(int32_t multiprocessors, Stream stream);

}  // namespace headrace::cuda
