#pragma once

// A value of a GGUF file's metadata.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace headrace {

/// Numbers as in the file.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

/// A scalar, or an array of scalars: arrays of arrays are refused. Points into the file's bytes,
/// which must outlive it, and holds nothing itself.
class GgufValue {
 public:
  GgufValue() = default;
  /// `bytes` begin with the first element. REQUIRES: they were checked to hold `count` of `type`,
  /// which is not kArray.
  GgufValue(GgufType type, bool is_array, uint64_t count, std::string_view bytes)
      : type_(type), is_array_(is_array), count_(count), bytes_(bytes) {}

  GgufType type() const noexcept { return type_; }  ///< of an array, its elements'
  bool is_array() const noexcept { return is_array_; }
  uint64_t count() const noexcept { return count_; }  ///< 1 for a scalar

  // Scalars. Nothing where the value is an array, of another kind or out of range.
  /// Any integer type, a bool as 0 or 1.
  std::optional<int64_t> integer() const;
  std::optional<bool> boolean() const;
  /// Any number.
  std::optional<double> number() const;
  std::optional<std::string_view> text() const;

  // Arrays; a scalar counts as an array of one. Nothing where an element isn't of that kind.
  std::optional<std::vector<int64_t>> integers() const;
  std::optional<std::vector<double>> numbers() const;
  std::optional<std::vector<std::string_view>> texts() const;

 private:
  std::optional<int64_t> integer_at(uint64_t i) const;
  std::optional<double> number_at(uint64_t i) const;

  GgufType type_ = GgufType::kU8;
  bool is_array_ = false;
  uint64_t count_ = 0;
  std::string_view bytes_;
};

/// Bytes of a scalar of a type; 0 for strings and arrays.
uint64_t gguf_type_size(GgufType type) noexcept;

}  // namespace headrace
