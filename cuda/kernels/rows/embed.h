#pragma once

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct EmbedArgs {
  DType dtype = DType::kF32;           ///< of the table and of out
  ConstMatrix table;                   ///< [n, H]; the layout of linears (weight_layout.h) serves
  const int32_t* token_ids = nullptr;  ///< [out.rows], each in [0, n)
  Matrix out;                          ///< [T, H]
  /// [out.rows], or null: where drawn_by[i] >= 0, row i's token is drawn[drawn_by[i]].
  const int32_t* drawn_by = nullptr;
  const int32_t* drawn = nullptr;
  /// The table has those of tokens [first, first + count) alone; ids need not be among them.
  int32_t first = 0;
  int32_t count = 0x7fffffff;
};

/// out[i] = table[token_ids[i] - first], or 0 where the table doesn't have it. Moves 2*T*H
/// elements.
void embed(const EmbedArgs& args, Stream stream);

}  // namespace headrace::cuda
