#pragma once

// The header of a packed file: docs/packed.md is the specification.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint/source_identity.h"
#include "model/config/quantization.h"
#include "tensor/dtype.h"

namespace headrace {

/// Version of the file format; a layout has one of its own (Backend::weight_layout).
inline constexpr int kPackedVersion = 1;
/// Every tensor begins at a multiple of this in the file, and is padded to one with zeros.
inline constexpr uint64_t kPackedAlignment = 256;

/// A tensor as it lies in the file: a matrix as bytes (kU8), a vector in the activations' dtype.
struct PackedTensor {
  std::string name;  ///< packed_name()
  DType dtype = DType::kU8;
  uint64_t bytes = 0;      ///< without the padding
  uint64_t hash = 0;       ///< parallel_hash of these bytes and the padding
  QuantFormat quant = {};  ///< of a matrix whose checkpoint came quantized, else not known

  uint64_t padded_bytes() const noexcept {
    return (bytes + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
  }
};

struct PackedHeader {
  std::string written_by;  ///< version of Headrace, for people
  std::string layout;      ///< Backend::weight_layout
  DType storage = DType::kF32;
  Quantization quantization;
  int32_t num_ranks = 1;       ///< devices that share the weights
  bool whole_experts = false;  ///< RankPlace::whole_experts
  std::string config;          ///< text of config.json, keys sorted
  std::vector<SourceFile> source;
  std::vector<PackedTensor> tensors;  ///< in the order of their bytes, without gaps
};

/// The file up to its first tensor's bytes, the header's length included: a multiple of
/// kPackedAlignment bytes, as many for any hashes.
std::string format_packed_header(const PackedHeader& header);

/// From a safetensors header, where data_bytes follow. PackedTensor::bytes are as padded in the
/// file. Throws what parse_safetensors_header throws, Error(kUnsupported) for another version and
/// Error(kCorruptFile) for any fault, naming `origin`.
PackedHeader parse_packed_header(std::string_view header, uint64_t data_bytes,
                                 const std::string& origin);

}  // namespace headrace
