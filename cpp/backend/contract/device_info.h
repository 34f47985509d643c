#pragma once

// What a backend says of its device, and what a model asks of a backend.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/contract/quant_format.h"
#include "tensor/dtype.h"

namespace headrace {

struct DeviceInfo {
  std::string name;         ///< "cpu" or "cuda:0"
  std::string description;  ///< e.g. "AMD EPYC, avx512_bf16, 2 threads"
  std::string isa;          ///< CPU: the kernels in use
  int32_t num_threads = 0;
  size_t total_bytes = 0;  ///< memory of the device
  size_t free_bytes = 0;   ///< available now
  int32_t num_nodes = 1;   ///< NUMA nodes that weights and work are shared out to

  // What code above the backends asks instead of which one it is.
  bool host_memory = true;       ///< its memory is the host's
  bool measured_memory = false;  ///< how much steps keep is known only after reserve()
  bool caches_packed = true;     ///< its packed weights may be kept in the cache on disk
  int32_t busy_rows = 512;       ///< rows of a step that keep it busy
  /// What activations are where they meet quantized weights: other formats are refused.
  Activations quant_activations = Activations::kInt8Groups;
  /// It multiplies codes by codes (rounds_rows()): FP8 weights, and int8 ones that were made for
  /// it, are kept as they come. false: they are read as numbers, and meet `quant_activations`.
  bool code_products = false;
  /// It keeps MXFP4 weights as they come (kFloat4Format). false: they are read as numbers.
  bool float4_weights = false;

  /// GPU: kernels that failed their trial on this device, each with why, and what runs in their
  /// place, or is refused.
  std::vector<std::string> replaced_kernels;
};

/// What a model needs, asked at load so that an unsupported one fails there, by name.
struct BackendNeeds {
  DType storage = DType::kF32;
  DType kv_dtype = DType::kF32;
  int32_t head_dim = 0;
  int32_t block_size = 64;
  std::string quantization;  ///< of some weights, as users call it; empty: none
  /// Steps with StepBatch::given or rope_positions.
  bool given_rows = false;
  bool vision = false;  ///< the ops of vision towers (vision_ops.h)
  int32_t tower_head_dim = 0;
  int32_t experts = 0;         ///< of a layer; 0: route() and experts() aren't called
  bool adapters = false;       ///< lora()
  bool states = false;         ///< the ops of layers with a state (state_ops.h)
  bool latent = false;         ///< head_dim is that of latent rows (latent_op.h)
  int32_t other_head_dim = 0;  ///< of layers whose heads aren't head_dim; 0: there are none
};

}  // namespace headrace
