#include "model/weights/weight_slice.h"

#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

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
    const int64_t element = whole.transposed ? window.first_k * whole.row_stride + window.first_n
                                             : window.first_n * whole.row_stride + window.first_k;
    part.data = static_cast<const std::byte*>(whole.data) +
                static_cast<size_t>(element) * dtype_size(whole.dtype);
  }
}

/// Of `size` features or inputs, in units of `unit`.
int64_t share_of(int64_t size, int64_t unit, const char* what, std::string_view tensor,
                 const WeightShare& share) {
  if (size % (share.count * unit) == 0) return size / share.count;
  throw_error(ErrorCode::kUnsupported, "tensor ", tensor, " has ", size, " ", what, ", which ",
              share.count, " devices can't share equally",
              unit > 1 ? str_cat(" in groups of ", unit) : std::string(), ".");
}

/// Of each piece of a stored part, the share's features: where they begin, and how many there are.
std::vector<std::pair<int64_t, int64_t>> share_of_rows(const StoredPart& part,
                                                       const WeightShare& share) {
  std::vector<std::pair<int64_t, int64_t>> out;
  int64_t first = 0;
  for (const int64_t piece : part.pieces.empty() ? std::vector<int64_t>{part.n} : part.pieces) {
    const int64_t n = share_of(piece, 1, "features", part.name, share);
    out.emplace_back(first + share.index * n, n);
    first += piece;
  }
  HEADRACE_CHECK(first == part.n, first, " of ", part.n);
  return out;
}

void add_columns(const WeightPart& part, const QuantFormat& quant, const WeightShare& share,
                 SlicedParts& out) {
  if (quant.reordered) {
    throw_error(ErrorCode::kUnsupported, "tensor ", part.name,
                " is quantized in an order of inputs of its own (act-order, desc_act), and can't "
                "be divided by inputs: take a checkpoint that was quantized without it.");
  }
  const int64_t unit = quant.bits == 0 ? 1 : quant.group_size;
  const int64_t k = share_of(part.k, unit, "inputs", part.name, share);
  add_window(part, {0, part.n, share.index * k, k}, out);
}

}  // namespace

SlicedParts slice_parts(const MatrixSource& source, std::span<const WeightPart> parts,
                        const WeightShare& share) {
  if (share.count == 1) return {.parts = {parts.begin(), parts.end()}};
  HEADRACE_CHECK(share.count >= 1 && share.index >= 0 && share.index < share.count, share.index,
                 " of ", share.count);
  HEADRACE_CHECK(parts.size() == source.parts.size(), parts.size(), " of ", source.parts.size());
  SlicedParts out;
  for (size_t i = 0; i < parts.size(); ++i) {
    const WeightPart& part = parts[i];
    if (source.slice_by == SliceBy::kRows) {
      for (const auto& [first, n] : share_of_rows(source.parts[i], share)) {
        add_window(part, {first, n, 0, part.k}, out);
      }
    } else if (source.slice_by == SliceBy::kColumns) {
      add_columns(part, source.quant, share, out);
    } else {
      out.parts.push_back(part);
    }
  }
  return out;
}

std::vector<std::pair<int64_t, int64_t>> share_of_vector(const VectorSource& source,
                                                         const StoredPart& part,
                                                         const WeightShare& share) {
  if (source.slice_by != SliceBy::kRows) return {{0, part.n}};
  return share_of_rows(part, share);
}

}  // namespace headrace
