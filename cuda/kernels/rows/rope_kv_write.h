#pragma once

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/kv_layout.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct RopeKvWriteArgs {
  DType dtype = DType::kF32;  ///< of qkv and the norms' weights
  Matrix qkv;                 ///< [T, (nq + 2*nkv)*d]; q is rotated in place
  int32_t num_heads = 0;
  const void* q_norm = nullptr;  ///< [d] or null, as is k_norm
  const void* k_norm = nullptr;
  float norm_eps = 1e-6f;
  const float* rope_table = nullptr;  ///< [T, rotary_dim]
  int64_t rope_stride = 0;
  int32_t rotary_dim = 0;  ///< 0: no rotation
  bool interleaved = false;
  DType cache_dtype = DType::kF32;
  KvLayout layout;
  void* keys = nullptr;  ///< of the layer
  void* values = nullptr;
  void* key_scales = nullptr;  ///< of a cache with scales (kv_layout.h)
  void* value_scales = nullptr;
  /// [T] device memory: block * block_size + place in the block of each row.
  const int64_t* slots = nullptr;
};

/// See Backend::rope_kv_write. Norm and rotation are computed in float32 and rounded once, to the
/// dtype (q) or to the cache's (k); codes are made of the float32 numbers. Moves
/// T*(2*nq + 4*nkv)*d elements.
/// REQUIRES: d even and <= 256; of codes, a multiple of 16.
void rope_kv_write(const RopeKvWriteArgs& args, Stream stream);

}  // namespace headrace::cuda
