#pragma once

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/kv_layout.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct LatentWriteArgs {
  DType dtype = DType::kF32;  ///< of q, kv, the norm and out
  ConstMatrix q;              ///< [T, num_heads * (nope_dim + rope_dim)]
  ConstMatrix kv;             ///< [T, rank + rope_dim]
  int32_t num_heads = 0;
  int32_t rank = 0, nope_dim = 0, rope_dim = 0;  ///< see LatentSpec
  const void* norm = nullptr;                    ///< [rank]
  float norm_eps = 1e-6f;
  const float* rope_table = nullptr;  ///< [T, rope_dim]
  int64_t rope_stride = 0;
  bool interleaved = false;
  DType cache_dtype = DType::kF32;  ///< kF32, kBF16 or kF16
  KvLayout layout;                  ///< head_dim: of a row of the cache
  void* rows = nullptr;             ///< of the layer
  const int64_t* slots = nullptr;   ///< see RopeKvWriteArgs
  Matrix out;                       ///< [T, num_heads * head_dim]
};

/// See Backend::latent_write. Norm and rotation are computed in float32 and rounded once, to the
/// cache's dtype or to that of out. Moves T * (rank + head_dim + (2 * num_heads + 1) * rope_dim)
/// elements.
void latent_write(const LatentWriteArgs& args, Stream stream);

}  // namespace headrace::cuda
