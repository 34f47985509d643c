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
  int64_t x_step, out_step;  // of groups of columns; else 0
  int32_t rows, tile_rows;   // where there is no list

  __device__ const T* token(int64_t pair) const {
    return x + (pair_rows == nullptr ? pair : int64_t{pair_rows[pair]}) * x_stride;
  }
  __device__ const T* token(const ExpertTile& tile, int row) const {
    return token(tile.first + row) + tile.expert * x_step;
  }
  __device__ ExpertTile tile(uint32_t number) const {
    if (tiles != nullptr) return tiles[number];
    const auto each = static_cast<uint32_t>(divide_up(rows, tile_rows));
    const int32_t first = static_cast<int32_t>(number % each) * tile_rows;
    return {static_cast<int32_t>(number / each), first, least(tile_rows, rows - first)};
  }
  __device__ LinearOutput<T, T> output(const LinearOutput<T, T>& out,
                                       const ExpertTile& tile) const {
    LinearOutput<T, T> own = out.of_expert(tile.expert);
    own.out += tile.expert * out_step;
    return own;
  }
};

template <class T>
GroupedTask<T> grouped_task(const GroupedLinearArgs& args) {
  const auto* x = static_cast<const T*>(args.x.data);
  HEADRACE_CHECK(args.x.rows <= 0x7fffffff, args.x.rows);
  return {x,
          args.x.stride,
          args.pair_rows,
          args.tiles,
          args.layout.elements(),
          is_vectorizable(x, args.x.stride, args.x_step),
          args.x_step,
          args.out_step,
          static_cast<int32_t>(args.x.rows),
          args.tile_rows};
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
  LinearOutput<T, T> out = linear_output<T, T>(as);
  out.vectors = out.vectors && args.out_step % Vector<T>::kSize == 0;
  return out;
}

}  // namespace headrace::cuda
