// Shares of a weight that several devices hold: put together they are the whole, and each is read
// from its own bytes alone.

#include "model/sources/weight_slice.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/host/weight_source.h"
#include "cpp/model/expect_error.h"
#include "cpp/model/golden_case.h"
#include "model/checkpoint/checkpoint.h"
#include "model/config/model_config.h"
#include "model/load/list_sources.h"
#include "model/load/load_config.h"
#include "model/sources/model_sources.h"
#include "model/weights/weight_loader.h"

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

enum class By { kRows, kColumns };

/// Modules that each share has as much of.
constexpr int64_t kModules[] = {8, 4, 4, 8};

/// Two tensors of 16 and 8 features.
class Weight {
 public:
  explicit Weight(Form form, By by) : form_(form), by_(by) {
    source_.k = kInputs;
    source_.transposed = form == Form::kTransposed;
    source_.parts = {{.name = "a", .n = 16}, {.name = "b", .n = 8}};
    if (form == Form::kCodes) source_.quant = {.bits = 8, .group_size = kGroup};
  }

  /// What a share reads of tensors, where reading anything that isn't its own fails.
  Matrix read(const RankPlace& share) {
    MatrixSource own = source_;
    if (by_ == By::kColumns) {
      const int64_t count = kInputs / share.count;
      slice_inputs(own, {share.index * count, count});
    } else {
      std::vector<SourceRange> rows;
      int64_t first = 0;
      for (const int64_t module : kModules) {
        rows.push_back({first + share.index * module / share.count, module / share.count});
        first += module;
      }
      slice_rows(own, rows);
    }
    std::vector<WeightPart> parts;
    for (const StoredPart& stored : source_.parts) parts.push_back(part(stored, share));
    const SlicedParts sliced = slice_parts(own, parts);
    Matrix out;
    for (const WeightPart& p : sliced.parts) append(p, out);
    EXPECT_EQ(static_cast<int64_t>(out.size()), own.n());
    return out;
  }

  MatrixSource& source() { return source_; }

 private:
  bool is_own(const StoredPart& stored, int64_t n, int64_t k, const RankPlace& share) const {
    if (by_ == By::kColumns) return k / (kInputs / share.count) == share.index;
    n += stored.name == "b" ? 16 : 0;
    for (const int64_t module : kModules) {
      if (n < module) return n / (module / share.count) == share.index;
      n -= module;
    }
    return false;
  }

  /// The smallest range with all of the share's own: exact, unless they are rows of several
  /// modules.
  Allowed allowed(const StoredPart& stored, const RankPlace& share) const {
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

  WeightPart part(const StoredPart& stored, const RankPlace& share) {
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
  std::string stored_bytes(const StoredPart& stored, const RankPlace& share) const {
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
  By by_;
  MatrixSource source_;
  std::vector<std::unique_ptr<Codes>> codes_;
  std::vector<std::unique_ptr<Numbers>> numbers_;
  std::vector<std::string> memory_;
};

class WeightSlices : public testing::TestWithParam<Form> {};

TEST_P(WeightSlices, RowsOfEachModulePutTogetherAreTheWhole) {
  Weight weight(GetParam(), By::kRows);
  const Matrix whole = weight.read({});
  ASSERT_EQ(whole.size(), 24u);
  for (const int32_t count : {2, 4}) {
    Matrix together(whole.size());
    for (int32_t index = 0; index < count; ++index) {
      const Matrix own = weight.read({index, count});
      ASSERT_EQ(own.size(), whole.size() / static_cast<size_t>(count));
      size_t at = 0;
      int64_t first = 0;
      for (const int64_t module : kModules) {
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
  Weight weight(GetParam(), By::kColumns);
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

TEST(WeightSlice, WhatCannotBeSharedIsRefusedByName) {
  const auto refused = [](const char* says, const auto& action) {
    expect_error(ErrorCode::kUnsupported, {says, "tensor_parallel_size"}, action);
  };
  Weight codes(Form::kCodes, By::kColumns);
  refused("in groups of 32", [&] { slice_inputs(codes.source(), {16, 32}); });
  codes.source().quant.reordered = true;
  refused("tensor a", [&] { slice_inputs(codes.source(), {0, 128}); });
  refused("a width of 3", [] { share_range(3, 1, {0, 4}, "a width"); });
  refused("in groups of 64", [] { share_range(128, 64, {0, 3}, "a width"); });
}

// Whoever has an order of inputs of its own keeps all of them, and has some of the features.
TEST(WeightSlice, WholeInputsAreSharedByFeatures) {
  Weight codes(Form::kCodes, By::kColumns);
  LinearSource linear{.matrix = codes.source(), .bias = {.parts = {{.name = "bias", .n = 24}}}};
  linear.matrix.whole_inputs = true;
  linear.matrix.quant.reordered = true;
  share_inputs(linear, {kInputs / 2, kInputs / 2}, {1, 2});
  EXPECT_TRUE(linear.gathers);
  EXPECT_EQ(linear.matrix.k, kInputs);
  EXPECT_EQ(linear.matrix.n(), 12);
  EXPECT_EQ(linear.bias.ranges, (std::vector<SourceRange>{{12, 12}}));
}

TEST(WeightSlice, SharesCoverAllInWholeUnits) {
  for (const int64_t size : {4, 40, 96, 271, 4864, 11008, 151936}) {
    for (const int64_t unit : {1, 32, 128}) {
      for (const int32_t count : {2, 3, 4, 8}) {
        if ((size + unit - 1) / unit < count) continue;
        SCOPED_TRACE(testing::Message() << size << " in " << unit << " by " << count);
        int64_t end = 0;
        for (int32_t index = 0; index < count; ++index) {
          const SourceRange own = share_range(size, unit, {index, count}, "it");
          EXPECT_EQ(own.first, end);
          EXPECT_EQ(own.first % unit, 0);
          EXPECT_GT(own.count, 0);
          if (size % (count * unit) == 0) {
            EXPECT_EQ(own.count, size / count);
          }
          end = own.first + own.count;
        }
        EXPECT_EQ(end, size);
      }
    }
  }
}

// Of each family's layers, in every layout that checkpoints have.
TEST(WeightSlice, RanksReadTheirPartsOfWholeModels) {
  for (const char* name : {"llama", "llama_tied_mqa", "qwen3_moe_fused", "qwen3_moe", "qwen2",
                           "gpt_oss", "gpt_oss_mxfp4"}) {
    SCOPED_TRACE(name);
    const GoldenCase golden = load_golden_case(name);
    const ModelConfig config = load_model_config(golden.folder);
    const Checkpoint checkpoint(golden.folder);
    const Quantization kept{.float4_weights = true};
    const ModelSources whole = checkpoint_sources(config, checkpoint, kept);
    for (const int32_t index : {0, 1}) {
      ModelSources sources = checkpoint_sources(config, checkpoint, kept);
      share_sources({index, 2}, sources);
      const ModelConfig own = share_config({index, 2}, config);
      const int64_t d = config.head_dim;
      const auto backend = make_cpu_backend({.num_threads = 1, .isa = "reference"});
      WeightLoader loader(*backend, &checkpoint, DType::kF32, 0.0f);
      EXPECT_EQ(sources.matrices().size(), whole.matrices().size());
      for (size_t i = 0; i < sources.matrices().size(); ++i) {
        const MatrixSource &source = *sources.matrices()[i], &all = *whole.matrices()[i];
        const auto weight = loader.matrix(source);
        EXPECT_EQ(weight->n(), source.n()) << source.name;
        EXPECT_EQ(weight->k(), source.k) << source.name;
        if (source.name.ends_with(".qkv")) {
          EXPECT_EQ(source.n(), (own.num_heads + 2 * own.num_kv_heads) * d);
        } else if (source.role == MatrixRole::kRouter) {
          EXPECT_EQ(source.numbers(), all.numbers()) << source.name;
        } else {
          EXPECT_NEAR(static_cast<double>(source.numbers()), static_cast<double>(all.numbers()) / 2,
                      static_cast<double>(all.numbers()) / 6)
              << source.name;
        }
      }
      for (const VectorSource* source : sources.vectors()) {
        EXPECT_EQ(loader.vector(*source).view.shape.elements(), source->n()) << source->name;
      }
    }
  }
}

}  // namespace
}  // namespace headrace
