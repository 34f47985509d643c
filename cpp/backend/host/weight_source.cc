#include "backend/host/weight_source.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/check.h"
#include "base/checked_math.h"
#include "tensor/finite.h"

namespace headrace {

namespace {

template <class T>
T load_unaligned(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

template <class T, class Convert>
void convert_run(const char* from, int64_t stride, int64_t count, float* out,
                 const Convert& convert) {
  const int64_t step = stride * static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < count; ++i) out[i] = convert(load_unaligned<T>(from + i * step));
}

/// Codes know their own extent.
void check_codes(const WeightSpec& spec, const WeightPart& part) {
  HEADRACE_CHECK(part.codes != nullptr && part.codes->format() == spec.quant,
                 "parts of a weight differ");
  const size_t inputs = part.codes->order().size();
  HEADRACE_CHECK(inputs == (spec.quant.reordered ? static_cast<size_t>(part.k) : 0), inputs);
  HEADRACE_CHECK(part.n > 0 && part.k > 0, part.n, " x ", part.k);
}

/// Numbers that something reads know their own extent.
void check_numbers(const WeightPart& part) {
  HEADRACE_CHECK(part.codes == nullptr, part.name);
  HEADRACE_CHECK(part.n > 0 && part.k > 0 && !part.transposed && part.row_stride == part.k, part.n,
                 " x ", part.k);
}

/// `count` elements of a part, from number `element` on and `stride` apart, as float32.
void read_part(const WeightPart& part, int64_t element, int64_t stride, int64_t count, float* out) {
  if (part.numbers == nullptr) {
    const auto* data = static_cast<const char*>(part.data);
    const auto size = static_cast<int64_t>(dtype_size(part.dtype));
    return read_elements(data + element * size, part.dtype, stride, count, out);
  }
  HEADRACE_CHECK((stride == 1 || count == 1) && element % part.k + count <= part.k, element);
  part.numbers->read(element / part.k, element % part.k, count, out);
}

void check_part(const WeightPart& part) {
  if (part.numbers != nullptr) return check_numbers(part);
  HEADRACE_CHECK(part.dtype == DType::kF32 || part.dtype == DType::kBF16 ||
                     part.dtype == DType::kF16 || part.dtype == DType::kF64,
                 dtype_name(part.dtype));
  HEADRACE_CHECK(part.codes == nullptr && part.data != nullptr && part.n > 0 && part.k > 0, part.n,
                 " x ", part.k);
  const int64_t row = part.transposed ? (part.n - 1) * part.feature_stride + 1 : part.k;
  HEADRACE_CHECK(part.feature_stride >= 1 && part.row_stride >= row, part.row_stride);
  const auto rows = static_cast<uint64_t>(part.transposed ? part.k : part.n);
  const auto elements = checked_mul(rows, static_cast<uint64_t>(part.row_stride));
  const auto bytes = elements ? checked_mul(*elements, 8) : std::nullopt;
  HEADRACE_CHECK(bytes && *bytes <= std::numeric_limits<int64_t>::max(), "weight of ", part.n,
                 " x ", part.k, " is too large");
}

/// All parts of a matrix have their inputs in one order.
void check_orders(const WeightSpec& spec) {
  HEADRACE_CHECK(!spec.quant.reordered || takes_order(spec.use, spec.experts));
  if (!spec.quant.reordered) return;
  for (int32_t expert = 0; expert < spec.experts; ++expert) {
    const std::span<const WeightPart> parts = expert_parts(spec, expert);
    for (const WeightPart& part : parts) {
      HEADRACE_CHECK(part.codes->order() == parts.front().codes->order(),
                     "parts of a weight differ");
    }
  }
}

/// Of several experts: as many parts for each, which give as many features.
void check_experts(const WeightSpec& spec, int64_t n) {
  if (spec.experts == 1) return;
  HEADRACE_CHECK(spec.experts > 1 && spec.experts <= kMaxExperts, spec.experts);
  HEADRACE_CHECK(spec.use == WeightUse::kLinear || spec.use == WeightUse::kGateUp);
  HEADRACE_CHECK(spec.parts.size() % static_cast<size_t>(spec.experts) == 0, spec.parts.size(),
                 " parts of ", spec.experts, " experts");
  for (int32_t expert = 0; expert < spec.experts; ++expert) {
    int64_t features = 0;
    for (const WeightPart& part : expert_parts(spec, expert)) features += part.n;
    HEADRACE_CHECK(features * spec.experts == n, "expert ", expert, " has ", features);
  }
}

}  // namespace

WeightExtent check_weight(const WeightSpec& spec) {
  HEADRACE_CHECK(!spec.parts.empty());
  HEADRACE_CHECK(
      spec.storage == DType::kF32 || spec.storage == DType::kBF16 || spec.storage == DType::kF16,
      dtype_name(spec.storage));
  WeightExtent extent{0, spec.parts.front().k};
  for (const WeightPart& part : spec.parts) {
    if (spec.parts.front().codes == nullptr) {
      check_part(part);
    } else {
      check_codes(spec, part);
    }
    HEADRACE_CHECK(part.k == extent.k, part.k, " and ", extent.k);
    extent.n += part.n;
    HEADRACE_CHECK(extent.n < (int64_t{1} << 40), extent.n);
  }
  HEADRACE_CHECK(
      spec.parts.front().codes != nullptr || (!spec.quant.zero_points && !spec.quant.f16_scales &&
                                              !spec.quant.reordered && !spec.quant.float4),
      "only codes have zero points, float16 scales and an order, or are MXFP4");
  HEADRACE_CHECK(!spec.quant.float4 || extent.k % kFloat4Format.group_size == 0, extent.k);
  check_experts(spec, extent.n);
  check_orders(spec);
  extent.n /= spec.experts;
  HEADRACE_CHECK(spec.use != WeightUse::kGateUp || extent.n % 2 == 0, extent.n);
  return extent;
}

WeightColumn find_feature(std::span<const WeightPart> parts, int64_t feature) {
  for (const WeightPart& part : parts) {
    if (feature < part.n) return {&part, feature};
    feature -= part.n;
  }
  return {};
}

void check_order(const int32_t* order, int64_t experts, int64_t k) {
  for (int64_t i = 0; i < experts * k; ++i) {
    if (order[i] >= 0 && order[i] < k) continue;
    throw_error(ErrorCode::kCorruptFile, "a packed weight's order of inputs names ", order[i],
                ", but it has ", k, ".");
  }
}

void read_elements(const void* data, DType dtype, int64_t stride, int64_t count, float* out) {
  const auto* from = static_cast<const char*>(data);
  switch (dtype) {
    case DType::kF32:
      return convert_run<float>(from, stride, count, out, [](float x) { return x; });
    case DType::kBF16:
      return convert_run<uint16_t>(from, stride, count, out, bf16_to_f32);
    case DType::kF16:
      return convert_run<uint16_t>(from, stride, count, out, f16_to_f32);
    case DType::kF64:
      return convert_run<double>(from, stride, count, out,
                                 [](double x) { return static_cast<float>(x); });
    default:
      HEADRACE_CHECK(false, dtype_name(dtype));
  }
}

void read_run(const WeightRun& run, DType kept, float* out) {
  read_part(run.part, run.element, run.stride, run.count, out);
  if (!all_fit(out, kept, run.count)) refuse_numbers(run, kept);
}

void refuse_numbers(const WeightRun& run, DType dtype) {
  for (int64_t i = 0; i < run.count; ++i) {
    const int64_t element = run.element + i * run.stride;
    float value = 0.0f;
    read_part(run.part, element, 1, 1, &value);
    if (all_fit(&value, dtype, 1)) continue;
    const std::string where =
        str_cat("tensor ", run.part.name, " holds ", value, " (its number ", element, ")");
    if (std::isfinite(value)) {
      throw TensorError(
          ErrorCode::kUnsupported,
          str_cat(where, ", which is beyond ", dtype_name(dtype), ": set dtype to float32."));
    }
    throw TensorError(ErrorCode::kCorruptFile,
                      where + ", with which no answer can be computed: get the file again.");
  }
  HEADRACE_CHECK(false, run.part.name);
}

void refuse_scales(const WeightPart& part) {
  throw TensorError(
      ErrorCode::kCorruptFile,
      str_cat("tensor ", part.name,
              " holds a scale with which numbers are NaN or infinite: get the file again."));
}

void read_weight_row(const WeightSpec& spec, int64_t row, int64_t first, int64_t count,
                     float* out) {
  for (const WeightPart& part : spec.parts) {
    if (row >= part.n) {
      row -= part.n;
      continue;
    }
    const int64_t at = part.transposed ? first * part.row_stride + row * part.feature_stride
                                       : row * part.row_stride + first;
    return read_run({part, at, part.transposed ? part.row_stride : 1, count},
                    spec.quant.bits == 0 ? spec.storage : DType::kF32, out);
  }
  HEADRACE_CHECK(false, row);
}

void check_vector(const WeightPart& part) {
  check_part(part);
  HEADRACE_CHECK(part.k == 1, part.k);
}

void read_vector(const WeightPart& part, DType kept, float* out) {
  read_run({part, 0, part.transposed ? 1 : part.row_stride, part.n}, kept, out);
}

float round_to(DType storage, float value) {
  if (storage == DType::kBF16) return bf16_to_f32(f32_to_bf16(value));
  if (storage == DType::kF16) return f16_to_f32(f32_to_f16(value));
  return value;
}

}  // namespace headrace
