#pragma once

#include <cstddef>

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/attention/attention_plan.h"
#include "cuda/kernels/kv_layout.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

/// A device array whose length is in device memory too, so that a captured graph can be replayed
/// for another step.
template <class T>
struct WorkList {
  const T* items = nullptr;
  const int32_t* count = nullptr;
  /// Blocks to launch are chosen by this many items: what the graph was captured for, or what there
  /// are. Any number >= 1 gives the same results; 0 launches nothing.
  int32_t expected = 0;
};

struct AttentionArgs {
  DType dtype = DType::kF32;  ///< of q and out
  /// Tensor cores run if it is dtype, of 16 bits, or codes, and dtype has 16 bits.
  DType cache_dtype = DType::kF32;
  AttentionShape shape;
  float scale = 1.0f;
  float soft_cap = 0.0f;         ///< see AttentionSpec; 0: none
  const float* sinks = nullptr;  ///< [nq] device memory, or null
  ConstMatrix q;                 ///< [T, nq*d]
  Matrix out;                    ///< [T, nq*d]
  KvLayout layout;
  bool latent = false;               ///< see PagedRows
  const void* keys = nullptr;        ///< of the layer
  const void* values = nullptr;      ///< of latent rows: keys
  const void* key_scales = nullptr;  ///< of a cache with scales
  const void* value_scales = nullptr;
  int64_t num_blocks = 0;                 ///< that keys and values have; wgmma needs it
  const int32_t* block_tables = nullptr;  ///< [sequences][table_stride]
  int64_t table_stride = 0;
  WorkList<AttentionItem> short_items, long_items;
  float* partials = nullptr;    ///< attention_partial_bytes()
  int32_t* counters = nullptr;  ///< attention_counter_bytes(), zero; they are zero again afterwards
  int32_t multiprocessors = 132;
  bool has_wgmma = false;  ///< compute capability 9.0
  bool plain = false;      ///< no tensor cores
};

struct AttentionKind {
  DType dtype = DType::kF32, cache_dtype = DType::kF32;
  int32_t head_dim = 0;
  int32_t block_size = 0;
  float scale = 0.0f;
  float soft_cap = 0.0f;
  bool latent = false;
};

/// Whether tensor cores can compute it, of rows aligned to 16 bytes.
bool mma_can_attend(const AttentionKind& kind);

/// Whether wgmma can compute long pieces; codes and soft caps aren't among what it takes. Rows are
/// aligned to 16 bytes then.
bool wgmma_can_attend(const AttentionKind& kind);

/// What shape.long_rows is to be.
int32_t attention_long_rows(const AttentionKind& kind, bool has_wgmma);

/// Bytes of `count` partial results.
size_t attention_partial_bytes(int64_t count, const AttentionShape& shape);

/// For the step's sequences.
size_t attention_counter_bytes(int64_t sequences, const AttentionShape& shape);

/// See Backend::attention and attention_plan.h. Scores, softmax and sums in float32; with tensor
/// cores the probabilities are rounded to the dtype (with codes, times the values' scales, to
/// float16) before they meet the values. With tensor cores
/// a row's bits are the same from every kind of piece, with wgmma or without (attention_fold.cuh).
/// Moves each short item's keys and values once, each long item's once for long_rows / part_heads()
/// rows; partial results of short items twice. Latent rows count once.
void attention(const AttentionArgs& args, Stream stream);

}  // namespace headrace::cuda
