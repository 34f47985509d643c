#pragma once

// Reading a weight's parts: checks, and conversion of a run of elements.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "backend/contract/backend.h"
#include "base/check.h"

namespace headrace {

struct WeightExtent {
  int64_t n = 0;  ///< of one expert
  int64_t k = 0;
};

/// [n, k] of an expert's stacked parts. Throws InternalError unless they are readable, of one k and
/// alike for all experts, and the storage is one the CPU keeps.
WeightExtent check_weight(const WeightSpec& spec);

/// The parts of one expert.
inline std::span<const WeightPart> expert_parts(const WeightSpec& spec, int64_t expert) {
  const size_t count = spec.parts.size() / static_cast<size_t>(spec.experts);
  return std::span(spec.parts).subspan(static_cast<size_t>(expert) * count, count);
}

/// What a weight of this spec and extent is, without its numbers.
inline WeightShape shape_of(const WeightSpec& spec, const WeightExtent& extent) {
  return {extent.n, extent.k, spec.storage, spec.use, spec.quant, spec.experts};
}
/// Where an output feature of a weight comes from; part == nullptr: from nowhere.
struct WeightColumn {
  const WeightPart* part = nullptr;
  int64_t feature = 0;  ///< of the part
};

/// Of stacked parts.
WeightColumn find_feature(std::span<const WeightPart> parts, int64_t feature);

/// Whether inputs of a weight may have an order of its own: of experts those of gate and up, as
/// these can give down its rows in any order.
constexpr bool takes_order(WeightUse use, int32_t experts) {
  return experts == 1 ? use == WeightUse::kLinear || use == WeightUse::kGateUp
                      : use == WeightUse::kGateUp;
}

/// Throws Error(kCorruptFile) unless all [experts][k] name one of k inputs.
void check_order(const int32_t* order, int64_t experts, int64_t k);

/// What `count` says a weight takes, asked only for sides of at most 2^40. Throws
/// Error(kLimitExceeded) if it says nothing or more than an int64_t holds.
template <class Count>
size_t checked_weight_bytes(const WeightShape& shape, const Count& count) {
  constexpr int64_t kMaxSide = int64_t{1} << 40;
  HEADRACE_CHECK(shape.n > 0 && shape.k > 0, shape.n, " x ", shape.k);
  HEADRACE_CHECK(shape.experts >= 1 && shape.experts <= kMaxExperts, shape.experts);
  HEADRACE_CHECK(!shape.quant.reordered || takes_order(shape.use, shape.experts));
  const bool usual = shape.n <= kMaxSide && shape.k <= kMaxSide;
  const std::optional<uint64_t> bytes = usual ? count() : std::nullopt;
  if (!bytes || *bytes > std::numeric_limits<int64_t>::max()) {
    throw_error(ErrorCode::kLimitExceeded, "a weight of ", shape.n, " x ", shape.k,
                " is more than any memory holds");
  }
  return *bytes;
}

/// `count` elements of a part, from number `element` of its data on and `stride` apart.
struct WeightRun {
  const WeightPart& part;
  int64_t element, stride, count;
};

/// Throws TensorError naming the first element of a run that is NaN, infinite, or infinite when it
/// is kept as `dtype`. REQUIRES: there is one.
[[noreturn]] void refuse_numbers(const WeightRun& run, DType dtype);

/// Throws TensorError for a part whose codes have a scale that is NaN or infinite, or makes numbers
/// infinite.
[[noreturn]] void refuse_scales(const WeightPart& part);

/// Calls spec.between.
inline void pause_packing(const WeightSpec& spec) {
  if (spec.between != nullptr) (*spec.between)();
}

/// `count` elements of `dtype`, `stride` elements apart, as float32.
void read_elements(const void* data, DType dtype, int64_t stride, int64_t count, float* out);

/// A run as float32. Throws TensorError unless all are finite and stay so as `kept`.
void read_run(const WeightRun& run, DType kept, float* out);

/// Elements (row, first .. first + count) of all stacked parts as float32; likewise, as the spec
/// keeps them.
void read_weight_row(const WeightSpec& spec, int64_t row, int64_t first, int64_t count, float* out);

/// Throws InternalError unless the part is a readable column [n, 1].
void check_vector(const WeightPart& part);
/// Its elements as float32. Throws TensorError unless all are finite and stay so as `kept`.
/// REQUIRES: check_vector(part).
void read_vector(const WeightPart& part, DType kept, float* out);

/// `value` as it reads after being kept as `storage`.
float round_to(DType storage, float value);

}  // namespace headrace
