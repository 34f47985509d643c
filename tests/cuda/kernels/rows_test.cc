// Kernels that work row by row, in the emulation, against the CPU's reference.

#include <algorithm>
#include <cmath>
#include <memory>

#include "backend/cpu/cpu_backend.h"
#include "backend/host/rope_angles.h"
#include "backend/reference/reference_attention.h"
#include "base/check.h"
#include "cuda/kernels/elementwise/gate_mul.h"
#include "cuda/kernels/rows/embed.h"
#include "cuda/kernels/rows/gather_rows.h"
#include "cuda/kernels/rows/rms_norm.h"
#include "cuda/kernels/rows/rope_kv_write.h"
#include "cuda/kernels/rows/rope_table.h"
#include "kv_array.h"
#include "parity/gates.h"

namespace headrace::cuda {
namespace {

class RowKernels : public KernelTest {
 protected:
  std::unique_ptr<Backend> reference_ = make_cpu_backend({.isa = "reference"});
  Random random_{31};
};

TensorView host_view(std::vector<float>& values, int64_t rows) {
  return TensorView(values.data(), DType::kF32, {rows, static_cast<int64_t>(values.size()) / rows});
}

TEST_P(RowKernels, EmbedAndGatherCopyRows) {
  for (const DType dtype : kDTypes) {
    for (const int64_t cols : {1, 8, 33, 64}) {
      const auto values = random_.uniforms(dtype, 10 * cols);
      const DeviceMatrix table(dtype, 10, cols, values, 8), out(dtype, 3, cols);
      const DeviceArray<int32_t> ids = {9, 0, 9};
      embed({dtype, table.matrix(), ids.data(), out.matrix()}, nullptr);
      const DeviceMatrix again(dtype, 3, cols, 5);
      gather_rows({dtype, table.matrix(), ids.data(), again.matrix()}, nullptr);
      for (int64_t i = 0; i < 3; ++i) {
        for (int64_t j = 0; j < cols; ++j) {
          const float want = values[static_cast<size_t>(ids.data()[i] * cols + j)];
          ASSERT_EQ(out.at(i, j), want);
          ASSERT_EQ(again.at(i, j), want);
        }
      }
    }
  }
}

TEST_P(RowKernels, EmbedTakesDrawnTokens) {
  const auto values = random_.uniforms(DType::kF32, 10 * 8);
  const DeviceMatrix table(DType::kF32, 10, 8, values, 8), out(DType::kF32, 4, 8);
  const DeviceArray<int32_t> ids = {3, 0, 0, 5}, drawn_by = {-1, 1, 0, -1}, drawn = {7, 2};
  embed({DType::kF32, table.matrix(), ids.data(), out.matrix(), drawn_by.data(), drawn.data()},
        nullptr);
  const int64_t want[] = {3, 2, 7, 5};
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j < 8; ++j) {
      ASSERT_EQ(out.at(i, j), values[static_cast<size_t>(want[i] * 8 + j)]);
    }
  }
}

// The reference's double sums are exact here; ours has relative error gamma_{H+2}, halved by the
// root; the root, the quotients and the products add 5 roundoffs of float32, the result one of the
// dtype.
double norm_bound(DType dtype, int64_t width) {
  return (0.5 * static_cast<double>(width + 2) + 6.0) * 0x1p-24 + roundoff(dtype);
}

TEST_P(RowKernels, RmsNormMatchesTheReference) {
  SCOPED_TRACE(random_.trace());
  for (const DType dtype : kDTypes) {
    for (const int64_t cols : {1, 7, 64, 200, 1032, 6144 * 3}) {
      const int64_t rows = cols > 2000 ? 1 : 3;
      auto x = random_.uniforms(dtype, rows * cols, -3.0f, 3.0f);
      auto weight = random_.uniforms(dtype, cols, 0.1f, 2.0f);
      std::vector<float> want(x.size());
      reference_->rms_norm(host_view(x, rows), TensorView(weight.data(), DType::kF32, {cols}),
                           1e-5f, host_view(want, rows));
      const DeviceMatrix in(dtype, rows, cols, x), scale(dtype, 1, cols, weight);
      const DeviceMatrix out(dtype, rows, cols);
      rms_norm({dtype, in.matrix(), {}, scale.data(), 1e-5f, out.matrix()}, nullptr);
      for (size_t i = 0; i < want.size(); ++i) {
        const auto row = static_cast<int64_t>(i) / cols, col = static_cast<int64_t>(i) % cols;
        ASSERT_NEAR(out.at(row, col), want[i], std::abs(want[i]) * norm_bound(dtype, cols))
            << dtype_name(dtype) << " " << cols;
      }
      rms_norm({dtype, in.matrix(), {}, scale.data(), 1e-5f, in.matrix()}, nullptr);
      ASSERT_EQ(in.values(), out.values());
    }
  }
}

TEST_P(RowKernels, AddRmsNormIsTheRoundedSumThenTheNorm) {
  SCOPED_TRACE(random_.trace());
  for (const DType dtype : kDTypes) {
    for (const int64_t cols : {5, 256, 2048}) {
      const auto x = random_.uniforms(dtype, 2 * cols), delta = random_.uniforms(dtype, 2 * cols);
      const DeviceMatrix residual(dtype, 2, cols, x), add(dtype, 2, cols, delta);
      const DeviceMatrix scale(dtype, 1, cols, random_.uniforms(dtype, cols));
      std::vector<float> sum(x.size());
      for (size_t i = 0; i < x.size(); ++i) sum[i] = round_to_dtype(dtype, x[i] + delta[i]);
      const DeviceMatrix sums(dtype, 2, cols, sum), want(dtype, 2, cols);
      rms_norm({dtype, sums.matrix(), {}, scale.data(), 1e-5f, want.matrix()}, nullptr);
      rms_norm({dtype, residual.matrix(), add.matrix(), scale.data(), 1e-5f, add.matrix()},
               nullptr);
      ASSERT_EQ(residual.values(), sum);
      ASSERT_EQ(add.values(), want.values());
    }
  }
}

// exp and erfc are good to 2 and 4 ulp; an argument that is off moves a GELU by 2 roundoffs of its
// gate more, the clamped gate's sum of 1 by one; the quotient and the products add 4 roundoffs.
TEST_P(RowKernels, GateMulMatchesTheReference) {
  for (const DType dtype : kDTypes) {
    for (const GateSpec& gate : kGates) {
      for (const int64_t cols : {3, 64, 1400}) {
        auto x = random_.uniforms(dtype, 4 * cols, -8.0f, 8.0f);
        x[1] = NAN;
        std::vector<float> want(static_cast<size_t>(2 * cols));
        reference_->gate_mul(host_view(x, 2), gate, host_view(want, 2));
        const DeviceMatrix in(dtype, 2, 2 * cols, x), out(dtype, 2, cols, 8);
        gate_mul({dtype, in.matrix(), out.matrix(), gate}, nullptr);
        EXPECT_TRUE(std::isnan(out.at(0, 1)) && std::isnan(want[1]));
        for (size_t i = 2; i < want.size(); ++i) {
          const auto row = static_cast<int64_t>(i) / cols, col = static_cast<int64_t>(i) % cols;
          const bool is_silu = gate.activation == Activation::kSilu && gate.limit == 0.0f;
          const double tiny = dtype == DType::kF16 ? 0x1p-25 : 1e-37;
          ASSERT_NEAR(out.at(row, col), want[i],
                      std::abs(want[i]) * (12 * 0x1p-24 + roundoff(dtype)) +
                          (is_silu ? tiny : 2 * 8 * 9 * 0x1p-24))
              << int(gate.activation);
        }
      }
    }
  }
}

TEST_P(RowKernels, RopeTableHasTheCpusBits) {
  RopeSpec spec;
  spec.rotary_dim = 80;
  spec.attention_factor = 1.25f;
  for (int i = 0; i < 40; ++i) {
    spec.inv_freq.push_back(static_cast<float>(std::pow(10000.0, -i / 40.0)));
  }
  spec.dynamic_original_max = 64;
  spec.dynamic_base = 10000.0;
  spec.dynamic_factor = 2.0;
  const std::vector<float> long_inv_freq(spec.inv_freq.rbegin(), spec.inv_freq.rend());
  const DeviceArray<int32_t> positions = {0, 1, 77, 131071}, lens = {64, 65, 130, 131072};
  const DeviceArray<float> inv_freq(spec.inv_freq), device_long(long_inv_freq), table(4 * 80);
  for (const bool is_long : {false, true}) {
    if (is_long) spec.long_inv_freq = long_inv_freq;
    std::vector<float> want(80);
    rope_table({.angles = {inv_freq.data(), 80, 1.25f, 64, 10000.0, 2.0,
                           is_long ? device_long.data() : nullptr},
                .positions = positions.data(),
                .rope_lens = lens.data(),
                .rows = 4,
                .out = table.data(),
                .out_stride = 80},
               nullptr);
    const auto out = table.values();
    for (size_t row = 0; row < 4; ++row) {
      const int32_t position = positions.data()[row];
      rope_angles(spec, {position, position, position}, lens.data()[row], want.data());
      EXPECT_EQ(std::vector<float>(out.begin() + static_cast<ptrdiff_t>(row) * 80,
                                   out.begin() + static_cast<ptrdiff_t>(row + 1) * 80),
                want);
    }
  }
}

struct KvCase {
  DType dtype, cache;
  int32_t heads, kv_heads, head_dim, rotary;
  bool interleaved, norms;
  QkNorm norm = QkNorm::kHead;
  bool float_norms = false, v_norm = false;
  float beta = 0.0f;

  /// Weights of q's or of k's norm.
  int64_t norm_size(int32_t num_heads) const {
    return int64_t{head_dim} * (norm == QkNorm::kRow ? num_heads : 1);
  }
  DType norm_dtype() const { return float_norms ? DType::kF32 : dtype; }
};

/// Both a step of two sequences: rows 0..2 from position 5, row 3 at position 17.
class KvWriteRun {
 public:
  KvWriteRun(const KvCase& c, Backend& reference, Random& random) : c_(c), reference_(reference) {
    width_ = int64_t{c.heads + 2 * c.kv_heads} * c.head_dim;
    x_ = random.uniforms(c.dtype, 4 * width_);
    norms_ =
        random.uniforms(c.norm_dtype(), c.norm_size(c.heads) + c.norm_size(c.kv_heads), 0.5f, 1.5f);
    table_ = random.uniforms(DType::kF32, 4 * std::max(c.rotary, 1));
  }

  /// Rotated q, then k and v of every row.
  std::vector<float> want() {
    const PagedRows rows = kv_rows(c_.kv_heads, c_.head_dim, c_.cache);
    const auto cache = reference_.make_kv_cache(CacheLayout::uniform(1, rows, 16), 3);
    const std::vector<int32_t> first = {2}, second = {1, 0}, ids(4, 0);
    const std::span<const int32_t> positions(kPositions);
    const SeqSlice seqs[] = {{0, 3, 5, first}, {3, 1, 17, second}};
    StepBatch batch{ids, positions, positions, seqs, {}};
    batch.cache = cache.get();
    reference_.begin_step(batch);
    std::vector<float> x = x_;
    QkvSpec qkv{c_.heads, c_.kv_heads, c_.head_dim, {}, {}, 1e-6f};
    if (c_.norms) {
      const int64_t q_size = c_.norm_size(c_.heads);
      qkv.q_norm = TensorView(norms_.data(), DType::kF32, {q_size});
      qkv.k_norm = TensorView(norms_.data() + q_size, DType::kF32, {c_.norm_size(c_.kv_heads)});
    }
    qkv.norm = c_.norm;
    qkv.v_norm = c_.v_norm;
    qkv.q_factor = {c_.beta, kOriginal};
    RopeSpec rope;
    rope.rotary_dim = c_.rotary;
    rope.style = c_.interleaved ? RopeStyle::kInterleaved : RopeStyle::kNeox;
    reference_.rope_kv_write(host_view(x, 4), qkv, rope,
                             c_.rotary > 0 ? host_view(table_, 4) : TensorView{}, *cache, 0);
    std::vector<float> out;
    const auto d = static_cast<size_t>(c_.head_dim);
    std::vector<float> key(d), value(d);
    for (int64_t row = 0; row < 4; ++row) {
      const auto q = x.begin() + row * width_;
      out.insert(out.end(), q, q + int64_t{c_.heads} * c_.head_dim);
      for (int32_t h = 0; h < c_.kv_heads; ++h) {
        const auto slot = static_cast<int32_t>(kSlots[row]);
        reference_kv_read(*cache, 0, slot / 16, h, slot % 16, key.data(), value.data());
        out.insert(out.end(), key.begin(), key.end());
        out.insert(out.end(), value.begin(), value.end());
      }
    }
    return out;
  }

  std::vector<float> got() {
    const DeviceMatrix x(c_.dtype, 4, width_, x_);
    const DeviceMatrix norms(c_.norm_dtype(), 1, static_cast<int64_t>(norms_.size()), norms_);
    const int32_t rows = c_.kv_heads * 16;  // of the layer; others' are between its blocks'
    const KvLayout layout{c_.kv_heads, 16, c_.head_dim, 2 * rows + 16, 3 * rows};
    const KvArray keys(c_.cache, layout, 3), values(c_.cache, layout, 3);
    RopeKvWriteArgs args{.dtype = c_.dtype, .qkv = x.matrix(), .num_heads = c_.heads};
    if (c_.norms) {
      args.q_norm = norms.data();
      args.k_norm = static_cast<char*>(norms.data()) +
                    static_cast<size_t>(c_.norm_size(c_.heads)) * dtype_size(c_.norm_dtype());
    }
    const DeviceArray<int32_t> positions{std::span<const int32_t>(kPositions)};
    args.float_norms = c_.float_norms;
    args.norm = c_.norm;
    args.v_norm = c_.v_norm;
    args.q_factor = {c_.beta, kOriginal};
    args.positions = c_.beta != 0.0f ? positions.data() : nullptr;
    const DeviceArray<float> table(table_);
    const DeviceArray<int64_t> slots{std::span<const int64_t>(kSlots)};
    args.rope_table = table.data();
    args.rope_stride = args.rotary_dim = c_.rotary;
    args.interleaved = c_.interleaved;
    args.cache_dtype = c_.cache;
    args.layout = layout;
    args.keys = keys.data();
    args.values = values.data();
    args.key_scales = keys.scales();
    args.value_scales = values.scales();
    args.slots = slots.data();
    rope_kv_write(args, nullptr);
    std::vector<float> out;
    const auto read = [&](const KvArray& cache, int64_t slot, int32_t head) {
      for (int32_t i = 0; i < c_.head_dim; ++i) out.push_back(cache.read(slot, head, i));
    };
    for (int64_t row = 0; row < 4; ++row) {
      for (int64_t j = 0; j < int64_t{c_.heads} * c_.head_dim; ++j) out.push_back(x.at(row, j));
      for (int32_t h = 0; h < c_.kv_heads; ++h) {
        read(keys, kSlots[row], h);
        read(values, kSlots[row], h);
      }
    }
    return out;
  }

  /// All of the first value head of a row.
  void set_value_head(int64_t row, float value) {
    const int64_t first = row * width_ + int64_t{c_.heads + c_.kv_heads} * c_.head_dim;
    std::fill_n(x_.begin() + first, c_.head_dim, value);
  }

 private:
  static constexpr int64_t kSlots[] = {37, 38, 39, 1};
  static constexpr int32_t kPositions[] = {5, 6, 7, 17};
  static constexpr int32_t kOriginal = 6;
  const KvCase c_;
  Backend& reference_;
  int64_t width_;
  std::vector<float> x_, norms_, table_;
};

// The norm's factor is within norm_bound(n) for n numbers; a rotation adds 3 roundoffs of both of
// its terms, each at most 1.5 * sqrt(n) after the norm, or behind it not more than sqrt(n) makes of
// them; a factor of at most 1.2 is within 4 roundoffs; then one rounding to the dtype or the
// cache's.
TEST_P(RowKernels, RopeKvWriteMatchesTheReference) {
  SCOPED_TRACE(random_.trace());
  const KvCase cases[] = {
      {DType::kF32, DType::kF32, 4, 2, 64, 64, false, true},
      {DType::kBF16, DType::kBF16, 6, 1, 128, 128, false, true},
      {DType::kF16, DType::kF16, 2, 2, 80, 32, false, false},
      {DType::kBF16, DType::kF32, 1, 1, 16, 16, true, true},
      {DType::kF32, DType::kBF16, 2, 1, 256, 0, false, true},
      {DType::kBF16, DType::kBF16, 4, 4, 96, 48, true, false},
      // By vectors, and element by element.
      {DType::kBF16, DType::kBF16, 3, 1, 128, 64, false, true, QkNorm::kHead, true, true, 0.1f},
      {DType::kF16, DType::kF16, 2, 1, 64, 64, false, true, QkNorm::kHeadAfterRope, true},
      {DType::kBF16, DType::kBF16, 2, 1, 64, 0, true, false, QkNorm::kHead, false, true},
      {DType::kBF16, DType::kBF16, 4, 1, 64, 64, false, false, QkNorm::kHead, false, false, 0.1f},
      {DType::kBF16, DType::kBF16, 6, 2, 64, 32, true, true, QkNorm::kRow, false, true, 0.1f},
      {DType::kBF16, DType::kBF16, 2, 1, 512, 512, false, true, QkNorm::kHead, true, true, 0.1f},
      {DType::kF32, DType::kF16, 3, 1, 48, 16, false, true, QkNorm::kHeadAfterRope, true, true},
      {DType::kF16, DType::kF32, 2, 2, 272, 0, false, true, QkNorm::kRow, true},
  };
  for (const KvCase& c : cases) {
    KvWriteRun run(c, *reference_, random_);
    const auto want = run.want(), got = run.got();
    ASSERT_EQ(got.size(), want.size());
    const double n = c.norm == QkNorm::kRow ? c.heads * c.head_dim : c.head_dim;
    const double largest = c.norms || c.v_norm ? 1.5 * std::sqrt(n) : 1.0;
    const double round = std::max(roundoff(c.dtype), roundoff(c.cache));
    for (size_t i = 0; i < want.size(); ++i) {
      const double bound =
          2 * largest * (norm_bound(DType::kF32, n) + 4 * 0x1p-24) * (c.beta != 0.0f ? 1.2 : 1.0) +
          (c.beta != 0.0f ? 4 * 0x1p-24 * 1.2 * largest : 0.0) +
          round * static_cast<double>(std::abs(want[i]));
      ASSERT_NEAR(got[i], want[i], bound) << i << " of head_dim " << c.head_dim;
    }
  }
}

// A key's number may fall to the other side of a boundary between codes: it is off by a step then.
// Values are rounded as they are, to the reference's codes. A head of zeros reads as zeros; one
// with a number that isn't finite as NaN.
TEST_P(RowKernels, RopeKvWriteRoundsToCodesAsTheReferenceDoes) {
  SCOPED_TRACE(random_.trace());
  const KvCase cases[] = {
      {DType::kBF16, DType::kI8, 4, 2, 128, 128, false, true},
      {DType::kF16, DType::kI8, 2, 1, 80, 32, false, false},
      {DType::kF32, DType::kF8E4M3, 2, 2, 64, 64, true, false},
      {DType::kBF16, DType::kF8E4M3, 1, 1, 256, 0, false, true},
      {DType::kBF16, DType::kU4, 2, 2, 64, 64, false, false},
      {DType::kF32, DType::kU4, 1, 1, 80, 80, false, true},
      {DType::kBF16, DType::kI8, 2, 1, 512, 256, false, true, QkNorm::kRow, true},
      {DType::kF16, DType::kU4, 1, 1, 272, 0, false, true, QkNorm::kHeadAfterRope, false, true},
  };
  for (const KvCase& c : cases) {
    SCOPED_TRACE(str_cat(dtype_name(c.cache), " x ", c.head_dim));
    KvWriteRun run(c, *reference_, random_);
    run.set_value_head(0, 0.0f);
    if (!c.v_norm) run.set_value_head(3, INFINITY);
    const auto want = run.want(), got = run.got();
    ASSERT_EQ(got.size(), want.size());
    const auto d = static_cast<size_t>(c.head_dim), q = static_cast<size_t>(c.heads) * d;
    const size_t row = q + 2 * static_cast<size_t>(c.kv_heads) * d;
    for (size_t head = 0; head < want.size(); head += d) {
      const size_t place = head % row;
      if (place < q) continue;  // the test above
      if ((place - q) / d % 2 == 1 && !c.v_norm) {
        for (size_t i = head; i < head + d; ++i) {
          if (std::isnan(want[i])) {
            EXPECT_TRUE(std::isnan(got[i]));
          } else {
            ASSERT_EQ(got[i], want[i]) << i;
          }
        }
        continue;
      }
      const auto [low, high] = std::minmax_element(&want[head], &want[head] + d);
      const float largest = std::max(-*low, *high);
      const float step = c.cache == DType::kI8   ? largest / 127
                         : c.cache == DType::kU4 ? (*high - *low) / 15 + 0x1p-7f * largest
                                                 : largest / 14;  // from 416 to 448
      size_t differ = 0;
      for (size_t i = head; i < head + d; ++i) {
        ASSERT_NEAR(got[i], want[i], 1.01f * step) << i;
        if (std::abs(got[i] - want[i]) > 0x1p-16f * largest) ++differ;
      }
      EXPECT_LE(differ, d / 16);
    }
  }
}

HEADRACE_KERNEL_TESTS(RowKernels);

}  // namespace
}  // namespace headrace::cuda
