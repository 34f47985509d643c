#pragma once

// What the kernels of grouped_linear() share.

#include "cuda/kernels/experts/grouped_linear.h"
#include "cuda/kernels/linear/linear_epilogue.cuh"

namespace headrace::cuda {

/// Rows of a tile that each kernel takes. grouped_skinny: 8 or 16.
inline constexpr int32_t kF32TileRows = 32;
inline constexpr int32_t kSkinnyTileRows = 16;
/// grouped_quant and grouped_rounded: 8, 16 or this.
inline constexpr int32_t kQuantTileRows = 64;

void grouped_f32(const GroupedLinearArgs& args, Stream stream);     ///< kF32TileRows
void grouped_skinny(const GroupedLinearArgs& args, Stream stream);  ///< up to kSkinnyTileRows
void grouped_tiles(const GroupedLinearArgs& args, Stream stream);   ///< 64 or 128
/// 16-bit activations, a quantized weight.
void grouped_quant(const GroupedLinearArgs& args, Stream stream);
/// A weight that rounds_rows(); float32 activations come in kF32TileRows.
void grouped_rounded(const GroupedLinearArgs& args, Stream stream);

template <class T>
struct GroupedTask {
  const T* x;
  int64_t x_stride;
  const int32_t* pair_rows;
  const ExpertTile* tiles;
  int64_t expert_elements;
  bool x_vectors;

  __device__ const T* token(int64_t pair) const {
    return x + (pair_rows == nullptr ? pair : int64_t{pair_rows[pair]}) * x_stride;
  }
};

template <class T>
GroupedTask<T> grouped_task(const GroupedLinearArgs& args) {
  const auto* x = static_cast<const T*>(args.x.data);
  return {x,          args.x.stride,          args.pair_rows,
          args.tiles, args.layout.elements(), is_vectorizable(x, args.x.stride, 0)};
}

/// With the bias of expert 0.
template <class T>
LinearOutput<T, T> grouped_output(const GroupedLinearArgs& args) {
  LinearArgs as;
  as.layout = args.layout;
  as.bias = args.bias;
  as.gate_mul = args.gate_mul;
  as.gate = args.gate;
  as.out = args.out;
  return linear_output<T, T>(as);
}

}  // namespace headrace::cuda
