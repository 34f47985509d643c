#pragma once

// Reading a weight's parts: checks, and conversion of a run of elements.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "backend/backend.h"
#include "base/check.h"

namespace headrace {

struct WeightExtent {
  int64_t n = 0;
  int64_t k = 0;
};

/// [n, k] of the stacked parts. Throws InternalError unless they are readable and of one k, and the
/// storage is one the CPU keeps.
WeightExtent check_weight(const WeightSpec& spec);

/// Throws Error(kCorruptFile) unless all [k] name one of k inputs.
void check_order(const int32_t* order, int64_t k);

/// What `count` says a weight takes, asked only for sides of at most 2^40. Throws
/// Error(kLimitExceeded) if it says nothing or more than an int64_t holds.
template <class Count>
size_t checked_weight_bytes(const WeightShape& shape, const Count& count) {
  constexpr int64_t kMaxSide = int64_t{1} << 40;
  HEADRACE_CHECK(shape.n > 0 && shape.k > 0, shape.n, " x ", shape.k);
  const bool usual = shape.n <= kMaxSide && shape.k <= kMaxSide;
  const std::optional<uint64_t> bytes = usual ? count() : std::nullopt;
  if (!bytes || *bytes > std::numeric_limits<int64_t>::max()) {
    throw_error(ErrorCode::kLimitExceeded, "a weight of ", shape.n, " x ", shape.k,
                " is more than any memory holds");
  }
  return *bytes;
}

/// `count` elements of `dtype`, `stride` elements apart, as float32.
void read_elements(const void* data, DType dtype, int64_t stride, int64_t count, float* out);

/// Elements (row, first .. first + count) of the stacked parts as float32.
void read_weight_row(const WeightSpec& spec, int64_t row, int64_t first, int64_t count, float* out);

/// Throws InternalError unless the part is a readable column [n, 1].
void check_vector(const WeightPart& part);
/// Its elements as float32. REQUIRES: check_vector(part).
void read_vector(const WeightPart& part, float* out);

/// `value` as it reads after being kept as `storage`.
float round_to(DType storage, float value);

}  // namespace headrace
