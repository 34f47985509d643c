#pragma once

#include "backend/contract/attention_op.h"
#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/kv_layout.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct RopeKvWriteArgs {
  DType dtype = DType::kF32;  ///< of qkv
  Matrix qkv;                 ///< [T, (nq + 2*nkv)*d]; q is rotated in place
  int32_t num_heads = 0;
  /// See QkvSpec. Weights or null.
  const void* q_norm = nullptr;
  const void* k_norm = nullptr;
  bool float_norms = false;  ///< the weights are float32, not dtype
  QkNorm norm = QkNorm::kHead;
  bool v_norm = false;
  float norm_eps = 1e-6f;
  PositionFactor q_factor;
  const int32_t* positions = nullptr;  ///< [T] device memory; null: no factor
  const float* rope_table = nullptr;   ///< [T, rotary_dim]
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
/// REQUIRES: d even and <= 512; of codes, a multiple of 16.
void rope_kv_write(const RopeKvWriteArgs& args, Stream stream);

}  // namespace headrace::cuda
