// Shares of a weight that several devices hold: put together they are the whole, and each is read
// from its own bytes alone.

#include "model/weights/weight_slice.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/host/weight_source.h"
#include "cpp/model/golden_case.h"
#include "expect_error.h"
#include "model/checkpoint/checkpoint.h"
#include "model/config/model_config.h"
#include "model/weights/weight_loader.h"
#include "model/weights/weight_sources.h"

namespace headrace {
namespace {

using Matrix = std::vector<std::vector<float>>;  // [n][k]
constexpr int64_t kInputs = 256;
constexpr int32_t kGroup = 32;

/// Exact in bfloat16, and another one in places that could be taken for each other.
float number(int64_t n, int64_t k) { return static_cast<float>((n * 37 + k * 5) % 251); }

/// What of a part may be read.
struct Allowed {
  int64_t first_n = 0, end_n = 0, first_k = 0, end_k = 0;

  void expect(int64_t n, int64_t count_n, int64_t k, int64_t count_k) const {
    EXPECT_TRUE(n >= first_n && n + count_n <= end_n) << n << " + " << count_n;
    EXPECT_TRUE(k >= first_k && k + count_k <= end_k) << k << " + " << count_k;
  }
};

class Codes final : public WeightCodes {
 public:
  explicit Codes(const Allowed& allowed) : allowed_(allowed) {}
  const QuantFormat& format() const noexcept override { return format_; }
  const std::vector<int32_t>& order() const noexcept override { return order_; }
  void read(int64_t first, int64_t count, int64_t group, QuantizedGroup* out) const override {
    allowed_.expect(first, count, group * kGroup, kGroup);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j < kGroup; ++j) {
        out[i].codes[j] = static_cast<uint8_t>(number(first + i, group * kGroup + j));
      }
    }
  }

 private:
  Allowed allowed_;
  QuantFormat format_{.bits = 8, .group_size = kGroup};
  std::vector<int32_t> order_;
};

class Numbers final : public WeightNumbers {
 public:
  explicit Numbers(const Allowed& allowed) : allowed_(allowed) {}
  void read(int64_t feature, int64_t first, int64_t count, float* out) const override {
    allowed_.expect(feature, 1, first, count);
    for (int64_t i = 0; i < count; ++i) out[i] = number(feature, first + i);
  }

 private:
  Allowed allowed_;
};

enum class Form { kPlain, kTransposed, kBf16, kCodes, kNumbers };

/// Two tensors of 16 and 8 features; the first is of modules of 8, 4 and 4.
class Weight {
 public:
  explicit Weight(Form form, SliceBy by) : form_(form) {
    source_.k = kInputs;
    source_.slice_by = by;
    source_.transposed = form == Form::kTransposed;
    source_.parts = {{.name = "a", .n = 16, .pieces = {8, 4, 4}}, {.name = "b", .n = 8}};
    if (form == Form::kCodes) source_.quant = {.bits = 8, .group_size = kGroup};
  }

  /// What a share reads of tensors, where reading anything that isn't its own fails.
  Matrix read(const WeightShare& share) {
    std::vector<WeightPart> parts;
    for (const StoredPart& stored : source_.parts) parts.push_back(part(stored, share));
    const SlicedParts sliced = slice_parts(source_, parts, share);
    Matrix out;
    for (const WeightPart& p : sliced.parts) append(p, out);
    return out;
  }

  MatrixSource& source() { return source_; }

 private:
  bool is_own(const StoredPart& stored, int64_t n, int64_t k, const WeightShare& share) const {
    if (source_.slice_by == SliceBy::kColumns) {
      return k / (kInputs / share.count) == share.index;
    }
    int64_t first = 0;
    for (const int64_t piece : stored.pieces.empty() ? std::vector{stored.n} : stored.pieces) {
      if (n < first + piece) return (n - first) / (piece / share.count) == share.index;
      first += piece;
    }
    return false;
  }

  /// The smallest range with all of the share's own: exact, unless they are rows of several
  /// modules.
  Allowed allowed(const StoredPart& stored, const WeightShare& share) const {
    Allowed out{stored.n, 0, kInputs, 0};
    for (int64_t n = 0; n < stored.n; ++n) {
      for (int64_t k = 0; k < kInputs; ++k) {
        if (!is_own(stored, n, k, share)) continue;
        out = {std::min(out.first_n, n), std::max(out.end_n, n + 1), std::min(out.first_k, k),
               std::max(out.end_k, k + 1)};
      }
    }
    return out;
  }

  WeightPart part(const StoredPart& stored, const WeightShare& share) {
    WeightPart out{.n = stored.n, .k = kInputs, .row_stride = kInputs, .name = stored.name};
    if (form_ == Form::kCodes) {
      out.codes = codes_.emplace_back(std::make_unique<Codes>(allowed(stored, share))).get();
    } else if (form_ == Form::kNumbers) {
      out.dtype = DType::kF8E4M3;
      out.numbers = numbers_.emplace_back(std::make_unique<Numbers>(allowed(stored, share))).get();
    } else {
      out.dtype = form_ == Form::kBf16 ? DType::kBF16 : DType::kF32;
      out.transposed = form_ == Form::kTransposed;
      if (out.transposed) out.row_stride = stored.n;
      out.data = memory_.emplace_back(stored_bytes(stored, share)).data();
    }
    return out;
  }

  /// Others' numbers are NaN, which nobody can read without an error.
  std::string stored_bytes(const StoredPart& stored, const WeightShare& share) const {
    const size_t size = form_ == Form::kBf16 ? 2 : 4;
    std::string out(static_cast<size_t>(stored.n * kInputs) * size, 0);
    for (int64_t n = 0; n < stored.n; ++n) {
      for (int64_t k = 0; k < kInputs; ++k) {
        const float value =
            is_own(stored, n, k, share) ? number(n, k) : std::numeric_limits<float>::quiet_NaN();
        const uint16_t half = f32_to_bf16(value);
        const int64_t at = form_ == Form::kTransposed ? k * stored.n + n : n * kInputs + k;
        const void* from = size == 2 ? static_cast<const void*>(&half) : &value;
        std::memcpy(out.data() + static_cast<size_t>(at) * size, from, size);
      }
    }
    return out;
  }

  static void append(const WeightPart& part, Matrix& out) {
    for (int64_t n = 0; n < part.n; ++n) {
      std::vector<float>& row = out.emplace_back(static_cast<size_t>(part.k));
      if (part.codes == nullptr) {
        read_weight_row({.parts = {part}, .storage = DType::kF32}, n, 0, part.k, row.data());
        continue;
      }
      for (int64_t group = 0; group < part.k / kGroup; ++group) {
        QuantizedGroup read;
        part.codes->read(n, 1, group, &read);
        std::copy_n(read.codes, kGroup, row.begin() + group * kGroup);
      }
    }
  }

  Form form_;
  MatrixSource source_;
  std::vector<std::unique_ptr<Codes>> codes_;
  std::vector<std::unique_ptr<Numbers>> numbers_;
  std::vector<std::string> memory_;
};

class WeightSlices : public testing::TestWithParam<Form> {};

TEST_P(WeightSlices, RowsOfEachModulePutTogetherAreTheWhole) {
  Weight weight(GetParam(), SliceBy::kRows);
  const Matrix whole = weight.read({});
  ASSERT_EQ(whole.size(), 24u);
  for (const int32_t count : {2, 4}) {
    Matrix together(whole.size());
    for (int32_t index = 0; index < count; ++index) {
      const Matrix own = weight.read({index, count});
      ASSERT_EQ(own.size(), whole.size() / static_cast<size_t>(count));
      size_t at = 0;
      int64_t first = 0;
      for (const int64_t module : {8, 4, 4, 8}) {
        const int64_t rows = module / count;
        for (int64_t i = 0; i < rows; ++i) {
          together[static_cast<size_t>(first + index * rows + i)] = own[at++];
        }
        first += module;
      }
    }
    EXPECT_EQ(together, whole) << count << " devices";
  }
}

TEST_P(WeightSlices, ColumnsPutTogetherAreTheWhole) {
  Weight weight(GetParam(), SliceBy::kColumns);
  const Matrix whole = weight.read({});
  for (const int32_t count : {2, 4}) {
    Matrix together(whole.size());
    for (int32_t index = 0; index < count; ++index) {
      const Matrix own = weight.read({index, count});
      ASSERT_EQ(own.size(), whole.size());
      for (size_t n = 0; n < own.size(); ++n) {
        ASSERT_EQ(own[n].size(), static_cast<size_t>(kInputs / count));
        together[n].insert(together[n].end(), own[n].begin(), own[n].end());
      }
    }
    EXPECT_EQ(together, whole) << count << " devices";
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, WeightSlices,
                         testing::Values(Form::kPlain, Form::kTransposed, Form::kBf16, Form::kCodes,
                                         Form::kNumbers));

TEST(WeightSlice, WhatCannotBeSharedEquallyIsRefusedByName) {
  Weight rows(Form::kPlain, SliceBy::kRows), columns(Form::kCodes, SliceBy::kColumns);
  const auto refused = [](Weight& weight, int32_t count, const char* says) {
    const WeightPart part{
        .data = &weight, .n = 16, .k = kInputs, .row_stride = kInputs, .name = "a"};
    expect_error(ErrorCode::kUnsupported, {"tensor a", says}, [&] {
      slice_parts(weight.source(), std::vector<WeightPart>(2, part), {0, count});
    });
  };
  refused(rows, 8, "4 features");
  refused(rows, 3, "8 features");
  refused(columns, 3, "256 inputs");
  refused(columns, 16, "groups of 32");
  columns.source().quant.reordered = true;
  refused(columns, 2, "desc_act");
}

/// Which linears devices share, and that a loader gives a device its own part of each.
TEST(WeightSlice, LoadersReadTheirShare) {
  for (const char* name : {"ernie4_5_moe", "ernie4_5_moe_paddle", "qwen3_moe_fused", "qwen2"}) {
    SCOPED_TRACE(name);
    const GoldenCase golden = load_golden_case(name);
    const ModelConfig config = load_model_config(golden.folder);
    const Checkpoint checkpoint(golden.folder);
    const ModelSources sources = checkpoint_sources(config, checkpoint, {});
    const auto backend = make_cpu_backend({.num_threads = 1, .isa = "reference"});
    WeightLoader loader(*backend, &checkpoint, DType::kF32, 0.0f, nullptr, {1, 2});
    for (const LayerSources& layer : sources.layers) {
      for (const MatrixSource* source : layer.matrices()) {
        const auto weight = loader.matrix(*source);
        const bool rows = source->slice_by == SliceBy::kRows;
        const bool columns = source->slice_by == SliceBy::kColumns;
        EXPECT_EQ(weight->n(), rows ? source->n() / 2 : source->n()) << source->name;
        EXPECT_EQ(weight->k(), columns ? source->k / 2 : source->k) << source->name;
        EXPECT_EQ(rows || columns, source->role == MatrixRole::kLinear) << source->name;
      }
      for (const VectorSource* source : layer.vectors()) {
        const bool rows = source->slice_by == SliceBy::kRows;
        EXPECT_EQ(rows, source->name.ends_with("qkv_bias")) << source->name;
        EXPECT_EQ(loader.vector(*source).view.shape.elements(),
                  rows ? source->n() / 2 : source->n())
            << source->name;
      }
    }
  }
}

}  // namespace
}  // namespace headrace
