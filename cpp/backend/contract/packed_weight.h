#pragma once

// Weight matrices: as checkpoints store them, and as a backend packed them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "backend/contract/quant_format.h"
#include "backend/contract/weight_codes.h"
#include "backend/contract/weight_numbers.h"
#include "headrace/status.h"
#include "tensor/dtype.h"

namespace headrace {

/// An Error whose message names the tensor that it is about.
class TensorError : public Error {
 public:
  using Error::Error;
};

/// A part of a weight matrix as a checkpoint stores it.
struct WeightPart {
  const void* data = nullptr;  ///< host memory (usually the mapped file), unaligned
  DType dtype = DType::kF32;   ///< kF32, kBF16, kF16 or kF64; of `numbers` kF8E4M3 or kF4E2M1
  int64_t n = 0;               ///< output features this part gives
  int64_t k = 0;               ///< input features
  /// false: element (n, k) is at data[n * row_stride + k] ([out, in], PyTorch).
  /// true:  element (n, k) is at data[k * row_stride + n * feature_stride] ([in, out], Paddle).
  bool transposed = false;
  int64_t row_stride = 0;      ///< in elements
  int64_t feature_stride = 1;  ///< likewise; more than 1 where features of two modules take turns
  /// Not null: the part is these codes, and data, dtype, transposed and row_stride mean nothing.
  const WeightCodes* codes = nullptr;
  /// Not null: these read the part, which lies as [n, k], and data means nothing.
  const WeightNumbers* numbers = nullptr;
  /// Of the tensor, for messages; of codes, that of their scales. Outlives the packing.
  std::string_view name{};
};

/// How a weight will be used, which decides its layout.
enum class WeightUse : uint8_t {
  kLinear,         ///< linear() only
  kGateUp,         ///< linear_gate_mul(): first half of the rows is gate, second half up
  kEmbedding,      ///< embed() only
  kTiedEmbedding,  ///< both embed() and linear()
};

struct WeightSpec {
  std::vector<WeightPart> parts;  ///< stacked along n, all of the same k
  DType storage = DType::kF32;    ///< kF32, kBF16 or kF16: how the backend keeps it
  WeightUse use = WeightUse::kLinear;
  /// bits != 0: kept as integers, and not as `storage`. linear() then also rounds the activations,
  /// to int8 with a scale for each row and group of k, or takes them as they come, as
  /// quant.activations says: Error(kUnsupported), from here, packed_bytes, restore_weight and
  /// weight_layout, where a backend has no such kernels. Not for kEmbedding, and MXFP4 only for
  /// kLinear and kGateUp. Parts are all numbers to be quantized (symmetric, bf16 scales, in order;
  /// not MXFP4), or all codes of this format and of one order.
  QuantFormat quant = {};
  /// Called by any thread of the packing between pieces of about a MiB; may throw to end it. Null:
  /// nothing is called. Outlives the packing.
  const std::function<void()>* between = nullptr;
  /// Matrices of one shape, each stacked from as many parts: expert 0's parts first. More than one
  /// only for experts(), of use kLinear or kGateUp.
  int32_t experts = 1;
};

/// A weight without its numbers, [n, k] for each of its experts: what decides how it lies in
/// memory.
struct WeightShape {
  int64_t n = 0;
  int64_t k = 0;
  DType storage = DType::kF32;
  WeightUse use = WeightUse::kLinear;
  QuantFormat quant = {};
  int32_t experts = 1;
};

/// One weight matrix [n, k], or one for each expert of a layer, in a backend's own layout. Made by
/// Backend::pack_weight or restore_weight; must be destroyed before its backend.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  /// Of one expert's matrix.
  int64_t n() const noexcept { return n_; }
  int64_t k() const noexcept { return k_; }
  int32_t experts() const noexcept { return experts_; }
  DType storage() const noexcept { return storage_; }
  /// Bytes of memory held, of all experts. A decode step must read those of the experts it uses.
  size_t bytes() const noexcept { return bytes_; }
  /// The whole weight: bytes() of device memory, which restore_weight takes.
  const void* data() const noexcept { return data_; }

 protected:
  PackedWeight(int64_t n, int64_t k, DType storage, const void* data, size_t bytes,
               int32_t experts = 1)
      : n_(n), k_(k), experts_(experts), storage_(storage), data_(data), bytes_(bytes) {}

 private:
  int64_t n_, k_;
  int32_t experts_;
  DType storage_;
  const void* data_;
  size_t bytes_;
};

}  // namespace headrace
