#pragma once

// Weights that a checkpoint stores as codes, in whatever order its format puts them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/contract/weight_codes.h"
#include "tensor/dtype.h"

namespace headrace {

/// Codes in little-endian words of 32 bits, 32 / bits of them in each, the first in the lowest
/// bits. Strides are in bytes; nothing is aligned.
struct CodeWords {
  const std::byte* data = nullptr;
  int64_t word_stride = 0;  ///< to the next word
  int64_t line_stride = 0;  ///< to the next line of words
  int64_t line_bytes = 0;   ///< of a line whose last word is cut short; 0: words are whole
  bool by_feature = false;  ///< a word holds features of one input; else inputs of one feature
  bool awq_order = false;   ///< of eight, in the order 0, 2, 4, 6, 1, 3, 5, 7
  bool is_signed = false;   ///< int8 instead of codes
};

/// Zero points: likewise in words along the features, or bytes; data == null: all the same.
struct CodeZeros {
  const std::byte* data = nullptr;
  int64_t group_stride = 0;  ///< from group to group
  int64_t word_stride = 0;   ///< to the next word, or byte
  bool awq_order = false;
  bool bytes = false;  ///< int8 each
  int32_t added = 0;   ///< to what is stored
};

/// Scales, one by one.
struct CodeScales {
  const std::byte* data = nullptr;
  DType dtype = DType::kF16;  ///< kF16, kBF16 or kF32
  int64_t feature_stride = 0, group_stride = 0;
  std::string tensor{};
};

/// What is stored for one linear layer.
struct StoredLayer {
  int64_t n = 0, k = 0;
  int32_t bits = 0;
  int64_t group_size = 0;  ///< inputs that share a scale
  CodeWords codes;
  CodeZeros zeros;
  CodeScales scales;
  std::vector<int32_t> order;        ///< of inputs by group; empty: as they come
  std::vector<std::string> tensors;  ///< all it is made of

  int64_t groups() const noexcept { return (k + group_size - 1) / group_size; }
  /// 0..15 or 0..255; int8 plus 128.
  int32_t code(int64_t feature, int64_t input) const noexcept;
  /// The code that stands for 0, 0..255, or more for a file that is corrupt.
  int32_t zero(int64_t feature, int64_t group) const noexcept;
  float scale(int64_t feature, int64_t group) const noexcept;
};

/// Codes of a checkpoint, and what holds them.
class CheckpointCodes : public WeightCodes {
 public:
  /// All tensors that they are made of.
  virtual const std::vector<std::string>& tensors() const noexcept = 0;
  /// The tensor of the scales.
  virtual const std::string& scales() const noexcept = 0;
};

/// The groups that the kernels know are those of the file, or parts of them. The memory that the
/// layer points to must outlive it.
class StoredCodes final : public CheckpointCodes {
 public:
  /// Of the layer's features those from `first` on. REQUIRES: a format with the layer's bits whose
  /// group_size divides the layer's, or the layer has only one group.
  StoredCodes(StoredLayer layer, const QuantFormat& format, int64_t first = 0)
      : layer_(std::move(layer)), format_(format), first_(first) {}

  const QuantFormat& format() const noexcept override { return format_; }
  const std::vector<int32_t>& order() const noexcept override { return layer_.order; }
  void read(int64_t first, int64_t count, int64_t group, QuantizedGroup* out) const override;
  const std::vector<std::string>& tensors() const noexcept override { return layer_.tensors; }
  const std::string& scales() const noexcept override { return layer_.scales.tensor; }

 private:
  void read_lines(int64_t first, int64_t count, int64_t input, int64_t inputs,
                  QuantizedGroup* out) const;
  void read_features(int64_t first, int64_t count, int64_t input, int64_t to,
                     QuantizedGroup* out) const;
  void read_input(int64_t first, int64_t count, int64_t input, int64_t to,
                  QuantizedGroup* out) const;

  StoredLayer layer_;
  QuantFormat format_;
  int64_t first_;
};

}  // namespace headrace
