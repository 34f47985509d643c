#pragma once

// What a weight is made of: stored tensors, or parts of them.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/contract/backend.h"
#include "model/quantized/stored_codes.h"
#include "model/quantized/stored_numbers.h"

namespace headrace {

/// Some of a matrix's features or inputs, or of a vector's numbers: [first, first + count).
struct SourceRange {
  int64_t first = 0, count = 0;
  bool operator==(const SourceRange&) const = default;
};

/// What a rank has of a matrix that several share (weight_slice.h).
struct MatrixSlice {
  int64_t k = 0;                  ///< inputs of the whole
  int32_t experts = 1;            ///< of the whole
  int32_t first_expert = 0;       ///< whose is the first matrix
  std::vector<SourceRange> rows;  ///< features, of each expert's
  int64_t first_input = 0;
};

/// A stored tensor that gives `n` output features of a matrix or `n` numbers of a vector.
struct StoredPart {
  std::string name;
  int64_t n = 0;
  /// What the checkpoint holds instead of such a tensor, if it comes quantized (stored_layers.h).
  std::shared_ptr<const CheckpointCodes> codes = {};
  /// Likewise, if it comes as small floats with scales.
  std::shared_ptr<const StoredNumbers> numbers = {};
  /// Of the stored tensor, if the part is a slice of it or it has other dimensions: else [n, k], or
  /// [k, n] of a transposed matrix, or [n].
  std::vector<int64_t> shape = {};
  int64_t offset = 0;  ///< of a slice: elements of the tensor before its first
  int64_t step = 1;    ///< features of the tensor from one to the next: 2 where modules take turns
};

/// What a matrix is to a model, which decides how it is kept.
enum class MatrixRole : uint8_t {
  kLinear,      ///< of a layer: quantized if the model is
  kVocabulary,  ///< embedding or head
  kRouter,      ///< kept in float32 whatever the model's dtype, never quantized
  kGates,       ///< of a layer, few rows that open and close a state: never quantized
};

/// No number: no adapter changes the linear.
inline constexpr int32_t kNoSite = -1;

/// A weight matrix [n, k], or several of that shape: stored tensors stacked along n. Empty: the
/// model has none.
struct MatrixSource {
  std::string name;  ///< of the whole, as the decoder calls it: "embedding", "layers.3.qkv", "head"
  /// Those of expert 0, then those of expert 1, ...; of the whole if this is a slice.
  std::vector<StoredPart> parts;
  int64_t k = 0;
  bool transposed = false;  ///< stored [k, n] instead of [n, k]
  WeightUse use = WeightUse::kLinear;
  QuantFormat quant = {};  ///< bits == 0: kept as kept_as() says
  MatrixRole role = MatrixRole::kLinear;
  int32_t experts = 1;         ///< matrices of this shape
  int32_t active_experts = 1;  ///< of them, those a token is multiplied by
  /// Not null: k, experts and n() are of a rank's part.
  std::shared_ptr<const MatrixSlice> slice = {};
  /// Its inputs have an order of their own, as far as config.json tells: ranks share its features,
  /// and each has all inputs.
  bool whole_inputs = false;
  bool adaptable = false;  ///< whether adapters may change it
  /// A large table, of which a token reads a row: it may stay in the checkpoint's file.
  bool stays_mapped = false;
  int32_t site = kNoSite;  ///< its number among those that they may change (list_sources)

  bool empty() const noexcept { return parts.empty(); }
  int64_t n() const noexcept;  ///< of one expert
  int64_t numbers() const noexcept { return experts * n() * k; }
  int64_t active_numbers() const noexcept { return active_experts * n() * k; }
  /// Of the stored tensors.
  int64_t stored_k() const noexcept { return slice == nullptr ? k : slice->k; }
  /// The dtype of a weight that isn't quantized, of a model with that one.
  DType kept_as(DType storage) const noexcept {
    return role == MatrixRole::kRouter ? DType::kF32 : storage;
  }
  /// Without its numbers, as the backend is asked for it.
  WeightShape weight_shape(DType storage) const;
};

/// Parts that one adapter may have for the linear: one for each of its runs of rows of one stored
/// tensor.
int64_t adapter_parts(const MatrixSource& source) noexcept;

/// Stored vectors, one behind the other. Empty: the model has none.
struct VectorSource {
  std::string name;  ///< likewise: "layers.3.qkv_bias", "final_norm"
  std::vector<StoredPart> parts;
  float offset = 0.0f;              ///< added to each number, in float32
  bool is_norm = false;             ///< a norm's weights, as opposed to a bias
  bool is_float = false;            ///< kept as float32 whatever activations are
  std::vector<SourceRange> ranges;  ///< that a rank has of it; empty: all

  bool empty() const noexcept { return parts.empty(); }
  int64_t n() const noexcept;
};

/// A norm. Only a layer norm may have a bias.
struct NormSource {
  VectorSource weight, bias;

  bool empty() const noexcept { return weight.empty(); }
};

/// A linear of a block.
struct LinearSource {
  MatrixSource matrix;
  VectorSource bias;
  bool gathers = false;  ///< a rank's, which has all inputs and some features (share_inputs)
};

}  // namespace headrace
