#pragma once

// Reading a weight's parts: checks, and conversion of a run of elements.

#include <cstdint>

#include "backend/backend.h"

namespace headrace {

struct WeightExtent {
  int64_t n = 0;
  int64_t k = 0;
};

/// [n, k] of the stacked parts. Throws InternalError unless they are readable and of one k, and the
/// storage is one the CPU keeps.
WeightExtent check_weight(const WeightSpec& spec);

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
