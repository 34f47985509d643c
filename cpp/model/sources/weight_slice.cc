#include "model/sources/weight_slice.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"

namespace headrace {

namespace {

/// Features [first_n, first_n + n) and inputs [first_k, first_k + k) of a part.
struct Window {
  int64_t first_n = 0, n = 0, first_k = 0, k = 0;
};

class SlicedCodes final : public WeightCodes {
 public:
  SlicedCodes(const WeightCodes& whole, const Window& window)
      : whole_(whole),
        first_feature_(window.first_n),
        first_group_(window.first_k / whole.format().group_size) {}

  const QuantFormat& format() const noexcept override { return whole_.format(); }
  const std::vector<int32_t>& order() const noexcept override { return whole_.order(); }
  void read(int64_t first, int64_t count, int64_t group, QuantizedGroup* out) const override {
    whole_.read(first_feature_ + first, count, first_group_ + group, out);
  }

 private:
  const WeightCodes& whole_;
  int64_t first_feature_, first_group_;
};

class SlicedNumbers final : public WeightNumbers {
 public:
  SlicedNumbers(const WeightNumbers& whole, const Window& window)
      : whole_(whole), window_(window) {}

  void read(int64_t feature, int64_t first, int64_t count, float* out) const override {
    whole_.read(window_.first_n + feature, window_.first_k + first, count, out);
  }

 private:
  const WeightNumbers& whole_;
  Window window_;
};

void add_window(const WeightPart& whole, const Window& window, SlicedParts& out) {
  WeightPart& part = out.parts.emplace_back(whole);
  part.n = window.n;
  part.k = window.k;
  if (whole.codes != nullptr) {
    part.codes = out.codes.emplace_back(std::make_unique<SlicedCodes>(*whole.codes, window)).get();
  } else if (whole.numbers != nullptr) {
    part.row_stride = window.k;
    part.numbers =
        out.numbers.emplace_back(std::make_unique<SlicedNumbers>(*whole.numbers, window)).get();
  } else {
    const int64_t element =
        whole.transposed ? window.first_k * whole.row_stride + window.first_n * whole.feature_stride
                         : window.first_n * whole.row_stride + window.first_k;
    part.data = static_cast<const std::byte*>(whole.data) +
                static_cast<size_t>(element) * dtype_size(whole.dtype);
  }
}

MatrixSlice& own_slice(MatrixSource& source) {
  MatrixSlice slice;
  if (source.slice != nullptr) {
    slice = *source.slice;
  } else {
    slice = {.k = source.k, .experts = source.experts, .rows = {{0, source.n()}}};
  }
  auto own = std::make_shared<MatrixSlice>(std::move(slice));
  source.slice = own;
  return *own;
}

/// Of features [first, first + n) of a stack those that are in the range, counted from `first`.
SourceRange overlap(const SourceRange& range, int64_t first, int64_t n) {
  const int64_t begin = std::max(range.first, first);
  const int64_t end = std::min(range.first + range.count, first + n);
  return {begin - first, std::max<int64_t>(end - begin, 0)};
}

}  // namespace

SourceRange share_range(int64_t size, int64_t unit, const RankPlace& place, std::string_view what) {
  const int64_t index = place.index, count = place.count;
  if (size % (count * unit) == 0) return {size / count * index, size / count};
  constexpr int64_t kNiceUnit = 64;
  int64_t wide = std::max(unit, kNiceUnit);
  while (wide > unit && (wide % unit != 0 || ceil_div(size, wide) < count)) wide /= 2;
  const int64_t units = ceil_div(size, wide);
  if (units < count) {
    throw_error(ErrorCode::kUnsupported, what, " of ", size,
                unit > 1 ? str_cat(", in groups of ", unit) : std::string(),
                ", can't be shared by ", count, " devices: lower tensor_parallel_size.");
  }
  const int64_t first = units * index / count * wide;
  return {first, std::min(units * (index + 1) / count * wide, size) - first};
}

SourceRange input_range(const MatrixSource& matrix, const RankPlace& place, std::string_view what) {
  const bool whole = matrix.quant.bits == 0 || matrix.whole_inputs;
  return share_range(matrix.k, whole ? 1 : matrix.quant.group_size, place, what);
}

SourceRange share_kv_heads(int64_t heads, int64_t kv_heads, const RankPlace& place) {
  const int64_t count = place.count;
  if (heads % count != 0 || (kv_heads % count != 0 && count % kv_heads != 0)) {
    throw_error(ErrorCode::kUnsupported, "the model has ", heads, " attention heads and ", kv_heads,
                " key/value heads, which ", count, " devices can't share equally: set ",
                "tensor_parallel_size to a divisor of ", heads,
                " that divides the key/value heads or is a multiple of them.");
  }
  if (kv_heads >= count) return {kv_heads / count * place.index, kv_heads / count};
  return {place.index / (count / kv_heads), 1};
}

void slice_rows(MatrixSource& source, std::vector<SourceRange> rows) {
  if (!source.empty()) own_slice(source).rows = std::move(rows);
}

void slice_inputs(MatrixSource& source, const SourceRange& inputs) {
  if (source.empty()) return;
  if (source.quant.reordered) {
    throw_error(ErrorCode::kUnsupported, "tensor ", source.parts.front().name,
                " is quantized in an order of inputs of its own (act-order), of which config.json "
                "says nothing (desc_act, actorder): correct it there, or set "
                "tensor_parallel_size to 1.");
  }
  const int64_t unit = source.quant.bits == 0 ? 1 : source.quant.group_size;
  if (inputs.first % unit != 0 ||
      (inputs.count % unit != 0 && inputs.first + inputs.count != source.k)) {
    throw_error(ErrorCode::kUnsupported, "tensor ", source.parts.front().name, " has ", source.k,
                " inputs in groups of ", unit, ", of which a device would get ", inputs.count,
                ": lower tensor_parallel_size or, of weights rounded at load, "
                "quantization_group_size.");
  }
  own_slice(source).first_input = inputs.first;
  source.k = inputs.count;
}

void share_inputs(LinearSource& linear, const SourceRange& inputs, const RankPlace& place) {
  if (!linear.matrix.whole_inputs) {
    slice_inputs(linear.matrix, inputs);
    if (place.index > 0) linear.bias = {};
    return;
  }
  const SourceRange own = share_range(linear.matrix.n(), 1, place, "a hidden size");
  slice_rows(linear.matrix, {own});
  if (!linear.bias.empty()) linear.bias.ranges = {own};
  linear.gathers = true;
}

void slice_experts(MatrixSource& source, const SourceRange& experts) {
  if (source.empty()) return;
  own_slice(source).first_expert = static_cast<int32_t>(experts.first);
  source.experts = static_cast<int32_t>(experts.count);
  source.active_experts = std::min(source.active_experts, source.experts);
}

SlicedParts slice_parts(const MatrixSource& source, std::span<const WeightPart> parts) {
  if (source.slice == nullptr) return {.parts = {parts.begin(), parts.end()}};
  HEADRACE_CHECK(parts.size() == source.parts.size(), parts.size(), " of ", source.parts.size());
  const MatrixSlice& slice = *source.slice;
  const size_t each = parts.size() / static_cast<size_t>(slice.experts);
  SlicedParts out;
  for (int32_t expert = 0; expert < source.experts; ++expert) {
    const auto own = parts.subspan(static_cast<size_t>(slice.first_expert + expert) * each, each);
    for (const SourceRange& rows : slice.rows) {
      int64_t first = 0;
      for (const WeightPart& part : own) {
        const SourceRange in = overlap(rows, first, part.n);
        if (in.count > 0) add_window(part, {in.first, in.count, slice.first_input, source.k}, out);
        first += part.n;
      }
    }
  }
  return out;
}

std::vector<SourceRange> own_numbers(const VectorSource& source, size_t index) {
  const StoredPart& part = source.parts[index];
  if (source.ranges.empty()) return {{0, part.n}};
  int64_t first = 0;
  for (size_t i = 0; i < index; ++i) first += source.parts[i].n;
  std::vector<SourceRange> out;
  for (const SourceRange& range : source.ranges) {
    const SourceRange in = overlap(range, first, part.n);
    if (in.count > 0) out.push_back(in);
  }
  return out;
}

}  // namespace headrace
