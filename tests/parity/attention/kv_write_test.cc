#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kv/kv_cache.h"
#include "backend/reference/reference_attention.h"
#include "base/check.h"

namespace headrace::test {
namespace {

constexpr int32_t kBlockSize = 32, kBlocks = 7, kLayer = 1;

struct Case {
  QkvSpec heads;
  RopeStyle style = RopeStyle::kNeox;
  int32_t rotary_dim = 0;
  bool norm = false;

  /// Weights of q's or of k's norm.
  int64_t norm_size(int32_t num_heads) const {
    return int64_t{heads.head_dim} * (heads.norm == QkNorm::kRow ? num_heads : 1);
  }
  int64_t width() const {
    return static_cast<int64_t>(heads.num_heads + 2 * heads.num_kv_heads) * heads.head_dim;
  }
};

struct Token {
  std::vector<float> queries, key, value;  ///< all heads; key and value as the cache holds them
};

std::string describe(const Case& c) {
  return str_cat("heads ", c.heads.num_heads, "/", c.heads.num_kv_heads, " x ", c.heads.head_dim,
                 " rotary ", c.rotary_dim, c.style == RopeStyle::kNeox ? " neox" : " interleaved",
                 c.norm ? str_cat(" norm ", static_cast<int>(c.heads.norm)) : "",
                 c.heads.v_norm ? " v norm" : "", " beta ", c.heads.q_factor.beta);
}

float round_to_dtype(float x, DType dtype) {
  return dtype == DType::kBF16  ? bf16_to_f32(f32_to_bf16(x))
         : dtype == DType::kF16 ? f16_to_f32(f32_to_f16(x))
                                : x;
}

/// Rows of three sequences: positions 0..39, 61..69 and 95; their inputs, and what became of them.
class Writer {
 public:
  Writer(const Case& c, uint32_t seed) : case_(c) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-2.0f, 2.0f);
    const auto fill = [&](size_t n) {
      std::vector<float> out(n);
      for (float& x : out) x = uniform(random);
      return out;
    };
    seqs_ = {{0, 40, 0, tables_[0]}, {40, 9, 61, tables_[1]}, {49, 1, 95, tables_[2]}};
    for (const SeqSlice& seq : seqs_) {
      for (int32_t i = 0; i < seq.num_rows; ++i) positions_.push_back(seq.start_pos + i);
    }
    input_ = fill(positions_.size() * static_cast<size_t>(c.width()));
    table_ = fill(positions_.size() * static_cast<size_t>(c.rotary_dim));
    q_norm_ = fill(static_cast<size_t>(c.norm_size(c.heads.num_heads)));
    k_norm_ = fill(static_cast<size_t>(c.norm_size(c.heads.num_kv_heads)));
    if (c.heads.v_norm) return;  // its float32 sum of squares has corners of its own
    // Rounding of values has corners: overflow, subnormals, ties, infinities.
    const float corners[] = {
        65519.0f, 65520.0f,    1e30f,        3e-8f,
        1e-40f,   1.00390625f, 1.001953125f, std::numeric_limits<float>::infinity()};
    std::copy(std::begin(corners), std::end(corners), input_.end() - 8);
  }

  std::vector<Token> run(Backend& backend, DType dtype, bool row_by_row = false) {
    const int32_t d = case_.heads.head_dim;
    const CacheLayout layout =
        CacheLayout::uniform(2, kv_rows(case_.heads.num_kv_heads, d, dtype), kBlockSize);
    const auto cache = backend.make_kv_cache(layout, kBlocks);
    const auto* tiled = dynamic_cast<const CpuKvCache*>(cache.get());
    const size_t bytes = backend.kv_block_bytes(layout) * kBlocks;
    if (tiled != nullptr) std::memset(tiled->part(0).data(), 0xff, bytes);
    std::vector<float> qkv = input_;
    for (const SeqSlice& seq : seqs_) {
      for (int32_t i = 0; row_by_row && i < seq.num_rows; ++i) {
        write(backend, qkv, {SeqSlice{0, 1, seq.start_pos + i, seq.blocks}}, seq.first_row + i, 1,
              *cache);
      }
    }
    if (!row_by_row) write(backend, qkv, seqs_, 0, positions_.size(), *cache);
    if (tiled != nullptr) expect_others_untouched(*tiled);
    return read(*cache, qkv);
  }

 private:
  void write(Backend& backend, std::vector<float>& qkv, std::vector<SeqSlice> seqs,
             int64_t first_row, size_t rows, KvCache& cache) {
    const std::vector<int32_t> zeros(rows, 0);
    const std::span<const int32_t> positions(positions_.data() + first_row, rows);
    StepBatch batch{zeros, positions, positions, seqs, {}};
    batch.cache = &cache;
    backend.begin_step(batch);
    QkvSpec heads = case_.heads;
    if (case_.norm) {
      heads.q_norm = TensorView(q_norm_.data(), DType::kF32, {case_.norm_size(heads.num_heads)});
      heads.k_norm = TensorView(k_norm_.data(), DType::kF32, {case_.norm_size(heads.num_kv_heads)});
    }
    RopeSpec rope;
    rope.style = case_.style;
    rope.rotary_dim = case_.rotary_dim;
    const auto n = static_cast<int64_t>(rows);
    const TensorView table(table_.data() + first_row * rope.rotary_dim, DType::kF32,
                           {n, rope.rotary_dim});
    const TensorView x(qkv.data() + first_row * case_.width(), DType::kF32, {n, case_.width()});
    backend.rope_kv_write(x, heads, rope, table, cache, kLayer);
  }

  std::vector<Token> read(const KvCache& cache, const std::vector<float>& qkv) const {
    const int32_t d = case_.heads.head_dim;
    const auto kv_width = static_cast<size_t>(case_.heads.num_kv_heads * d);
    std::vector<Token> out;
    for (const SeqSlice& seq : seqs_) {
      for (int32_t i = 0; i < seq.num_rows; ++i) {
        const int32_t position = seq.start_pos + i;
        const int32_t block = seq.blocks[0][static_cast<size_t>(position / kBlockSize)];
        const float* row = qkv.data() + (seq.first_row + i) * case_.width();
        Token token{{row, row + case_.heads.num_heads * d},
                    std::vector<float>(kv_width),
                    std::vector<float>(kv_width)};
        for (int32_t h = 0; h < case_.heads.num_kv_heads; ++h) {
          const auto* tiled = dynamic_cast<const CpuKvCache*>(&cache);
          float* key = token.key.data() + h * d;
          float* value = token.value.data() + h * d;
          if (tiled != nullptr) {
            tiled->read(kLayer, block, h, position % kBlockSize, key, value);
          } else {
            reference_kv_read(cache, kLayer, block, h, position % kBlockSize, key, value);
          }
        }
        out.push_back(std::move(token));
      }
    }
    return out;
  }

  void expect_others_untouched(const CpuKvCache& cache) const {
    const auto d = static_cast<size_t>(case_.heads.head_dim);
    std::vector<float> key(d), value(d);
    const auto is_nan = [](float x) { return std::isnan(x); };
    const auto expect_nan = [&](int32_t layer, int32_t block, int32_t slot) {
      cache.read(layer, block, 0, slot, key.data(), value.data());
      EXPECT_TRUE(std::all_of(key.begin(), key.end(), is_nan) &&
                  std::all_of(value.begin(), value.end(), is_nan))
          << describe(case_) << " layer " << layer << " block " << block << " slot " << slot;
    };
    expect_nan(0, tables_[0][0], 3);
    expect_nan(kLayer, tables_[0][1], 8);   // position 40 of the first sequence
    expect_nan(kLayer, tables_[1][1], 28);  // position 60 of the second
    expect_nan(kLayer, tables_[1][2], 6);   // position 70
    expect_nan(kLayer, tables_[2][2], 30);  // position 94 of the third
  }

  Case case_;
  const std::vector<int32_t> tables_[3] = {{4, 0}, {6, 2, 5}, {6, 2, 3}};
  std::vector<SeqSlice> seqs_;
  std::vector<int32_t> positions_;
  std::vector<float> input_, table_, q_norm_, k_norm_;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  const std::pair<int32_t, int32_t> heads[] = {{1, 1}, {4, 2}, {7, 1}};
  size_t next = 0;
  for (const int32_t d : {16, 48, 64, 80, 128, 256}) {
    for (const int32_t rotary_dim : {0, 2, d / 2, d}) {
      for (const RopeStyle style : {RopeStyle::kNeox, RopeStyle::kInterleaved}) {
        const auto [nq, nkv] = heads[next++ % std::size(heads)];
        cases.push_back({{nq, nkv, d, {}, {}, 1e-6f}, style, rotary_dim, next % 2 == 0});
      }
    }
  }
  // The other norms, and what else happens to heads.
  const PositionFactor factor{0.1f, 16};
  for (const int32_t d : {48, 272, 512}) {
    for (const QkNorm norm : {QkNorm::kHead, QkNorm::kHeadAfterRope, QkNorm::kRow}) {
      const auto [nq, nkv] = heads[next++ % std::size(heads)];
      const RopeStyle style = next % 2 == 0 ? RopeStyle::kNeox : RopeStyle::kInterleaved;
      const int32_t rotary_dim = next % 4 == 0 ? 0 : d / 2;
      cases.push_back(
          {{nq, nkv, d, {}, {}, 1e-6f, norm, next % 2 == 0, factor}, style, rotary_dim, true});
    }
  }
  cases.push_back({{4, 2, 32, {}, {}, 1e-6f, QkNorm::kHead, true, factor}});
  return cases;
}

/// What a norm of n numbers is off by, without its weight, for results up to sqrt(n). With
/// u = 2^-24: its sum of squares by (n + 2) u relatively, its root by half of that plus 3 u, the
/// two products by 2 u.
double norm_error(double n) { return ((n + 2) / 2 + 6) * 0x1p-24 * std::sqrt(n); }

// |x| <= 2 before the norm, as are weights, sines and cosines. A rotation rounds 3 times: it is off
// by 3 u * 8 * max|x|, and makes numbers and what they are off by up to 4 times as large. A norm
// behind it sees numbers of about 1.6 at the root of their mean square, by 4 standard deviations
// more than 1/2: it at most doubles what they are off by; its weight doubles that again. A row's
// norm sums more numbers. At last q takes a factor of less than 2, rounded twice.
double tolerance(const Case& c) {
  const double u = 0x1p-24, d = c.heads.head_dim;
  const double n = c.heads.norm == QkNorm::kRow ? d * c.heads.num_heads : d;
  const double normed = c.norm ? 2.0 * norm_error(n) : 0.0;
  double bound;
  if (c.norm && c.heads.norm == QkNorm::kHeadAfterRope) {
    bound = 4.0 * 24 * u * 2.0 + normed;
  } else {
    bound = 4 * normed + 24 * u * (c.norm ? 2.0 * std::sqrt(n) : 2.0);
  }
  if (c.heads.q_factor.beta == 0.0f) return bound;
  return 2.0 * bound + 2 * u * 16.0 * std::sqrt(n);
}

void expect_close(const std::vector<float>& out, const std::vector<float>& expected, double bound,
                  const std::string& what) {
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] == expected[i]) continue;
    ASSERT_NEAR(out[i], expected[i], bound) << what << " element " << i;
  }
}

class KvWrite : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> backend(int32_t threads = 2) const {
    CpuBackendOptions options;
    options.isa = GetParam();
    options.num_threads = threads;
    return make_cpu_backend(options);
  }
};

TEST_P(KvWrite, MatchesTheReference) {
  CpuBackendOptions options;
  options.isa = "reference";
  const auto reference = make_cpu_backend(options);
  const auto tested = backend();
  uint32_t seed = 0;
  for (const Case& c : all_cases()) {
    Writer writer(c, ++seed);
    const std::vector<Token> out = writer.run(*tested, DType::kF32);
    const std::vector<Token> expected = writer.run(*reference, DType::kF32);
    for (size_t i = 0; i < out.size(); ++i) {
      const std::string what = str_cat(describe(c), " row ", i);
      expect_close(out[i].queries, expected[i].queries, tolerance(c), what + " queries");
      expect_close(out[i].key, expected[i].key, tolerance(c), what + " key");
      if (c.heads.v_norm) {
        expect_close(out[i].value, expected[i].value, norm_error(c.heads.head_dim), what);
      } else {
        EXPECT_TRUE(out[i].value == expected[i].value) << what << " value";
      }
    }
  }
}

TEST_P(KvWrite, RoundsToTheCacheToNearestEven) {
  const auto tested = backend();
  uint32_t seed = 100;
  for (const Case& c : all_cases()) {
    Writer writer(c, ++seed);
    const std::vector<Token> exact = writer.run(*tested, DType::kF32);
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const std::vector<Token> out = writer.run(*tested, dtype);
      for (size_t i = 0; i < out.size(); ++i) {
        for (size_t j = 0; j < out[i].key.size(); ++j) {
          ASSERT_EQ(out[i].key[j], round_to_dtype(exact[i].key[j], dtype)) << describe(c);
          ASSERT_EQ(out[i].value[j], round_to_dtype(exact[i].value[j], dtype)) << describe(c);
        }
      }
    }
  }
}

/// |x| <= bound is what rounding to steps may be off by: half a step, and what working it out in
/// float32 adds. uint4's first step is a bf16 number, and so is its size: each by 2^-8.
float rounding_bound(const float* x, int32_t d, DType dtype) {
  const auto [low, high] = std::minmax_element(x, x + d);
  const float largest = std::max(-*low, *high);
  const float rounding = largest * 0x1p-20f;
  if (dtype == DType::kI8) return largest / 254.0f + rounding;
  if (dtype == DType::kF8E4M3) return largest / 28.0f + rounding;  // 16 of 448
  const float range = *high - *low + 0x1p-8f * largest;
  return range / 30.0f + 0x1p-8f * (largest + range) + rounding;
}

TEST_P(KvWrite, QuantizesEachHeadOfATokenByItself) {
  const auto tested = backend();
  uint32_t seed = 200;
  for (const Case& c : all_cases()) {
    Writer writer(c, ++seed);
    const std::vector<Token> exact = writer.run(*tested, DType::kF32);
    for (const DType dtype : {DType::kI8, DType::kF8E4M3, DType::kU4}) {
      const std::vector<Token> out = writer.run(*tested, dtype);
      const auto check = [&](const std::vector<float>& read, const std::vector<float>& wanted) {
        const int32_t d = c.heads.head_dim;
        for (size_t head = 0; head < read.size(); head += static_cast<size_t>(d)) {
          const float* x = wanted.data() + head;
          const bool finite = std::all_of(x, x + d, [](float v) { return std::isfinite(v); });
          const float bound = finite ? rounding_bound(x, d, dtype) : 0.0f;
          for (int32_t i = 0; i < d; ++i) {
            const float got = read[head + static_cast<size_t>(i)];
            if (!finite) {
              ASSERT_TRUE(std::isnan(got)) << describe(c) << " " << dtype_name(dtype);
            } else {
              ASSERT_NEAR(got, x[i], bound) << describe(c) << " " << dtype_name(dtype);
            }
          }
        }
      };
      for (size_t i = 0; i < out.size(); ++i) {
        check(out[i].key, exact[i].key);
        check(out[i].value, exact[i].value);
      }
    }
  }
}

/// NaN is the same as NaN.
bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_P(KvWrite, BitsDependOnTheRowAlone) {
  for (const Case& c : all_cases()) {
    Writer writer(c, 7);
    for (const DType dtype : {DType::kBF16, DType::kI8, DType::kF8E4M3, DType::kU4}) {
      const std::vector<Token> expected = writer.run(*backend(1), dtype, /*row_by_row=*/true);
      const std::vector<Token> out = writer.run(*backend(3), dtype);
      for (size_t i = 0; i < out.size(); ++i) {
        EXPECT_TRUE(out[i].queries == expected[i].queries && same(out[i].key, expected[i].key) &&
                    same(out[i].value, expected[i].value))
            << describe(c) << " " << dtype_name(dtype) << " row " << i;
      }
    }
  }
}

std::vector<std::string> kernel_isas() {
  std::vector<std::string> isas = available_cpu_isas();
  std::erase(isas, "reference");
  return isas;
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, KvWrite, testing::ValuesIn(kernel_isas()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace headrace::test
