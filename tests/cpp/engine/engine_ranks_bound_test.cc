// How far log-probabilities of several devices may be from those of one: a bound from the roundings
// that differ, and not from how models happen to behave.
//
// Both runs are the exact network with errors at the outputs of its ops. To first order the runs'
// distance is the sum, over all outputs of all ops, of the log-probability's derivative there times
// the difference of both runs' errors there. Derivatives are finite differences here: each output
// is moved by itself, once. Roundings are taken as independent and of mean 0, each of at most u
// (2^-24) times a bound of what is rounded (Higham and Mary, 2019). Then, by Hoeffding, a sum of
// terms that are at most c_i is beyond 6 sqrt(sum of c_i^2) once in 3e7 times. The difference b of
// both runs' errors in an output y:
//
// Linear. A is the sum of |x_k w_k|. One device: a chain of K roundings of at most u A. N of them,
// where the inputs are shared out: chains of K / N, then N - 1 sums of the parts; else K roundings
// again. So b = sqrt(2 K + N) u A is enough for all.
//
// Residual. One rounding in each run: b = 2 u |y|.
//
// RMS norm. Two chains of H + 1 in the mean, of which the root halves the relative error; division,
// root and two products: b = (sqrt(2 H) + 12) u |y|. A row's error is mostly one number: its
// columns are one term.
//
// silu * up. An exponential and five roundings, 8 u |y| in each run: b = 16 u |y|.
//
// Attention with n keys of d numbers. Rope turns each q and k by 3 roundings; a score is a chain of
// d, and a scale. A being the largest sum of |q| |k| over the pairs that rope turns, times the
// scale, a score's error is sqrt(d + 20) u A in each run; the exponential's is 4 u. A weight's
// relative error moves what is within 2 |v| of the result, |v| being the largest of the column;
// then come a chain of n, twice, and a division:
// b = sqrt(2) (2 (sqrt(d + 20) A + 4) + 2 sqrt(n) + 2) u |v|. A head's columns of a row are one
// term.
//
// Embeddings, and logits that are put together, are copies. The log-softmax rounds by less than
// 64 u of the largest logit. Terms of second order are some 1e-5 of this; 1 % stands for them.
// Weights are float32 or bfloat16, activations and the cache float32, as the CPU has them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/cpu_isa.h"
#include "cpp/model/decoder_harness.h"
#include "cpp/model/golden_case.h"
#include "fakes/fake_model.h"
#include "headrace/engine.h"

namespace headrace {
namespace {

using testing::read_all;

constexpr double kUnit = 0x1p-24;
constexpr int kMostRanks = 4;
const std::vector<int32_t> kPrompt = {5, 17, 3, 29};

/// One that has no products of rounded activations, whatever the machine.
constexpr const char* kIsa = "baseline";

float number(const TensorView& x, int64_t row, int64_t col) { return x.row<float>(row)[col]; }

/// Computes a step, and moves one of its ops' outputs; or lists how far each may be off.
class Prober final : public CpuBackend {
 public:
  Prober() : CpuBackend(select_cpu_isa(kIsa), 1, 0) {}

  /// Of the next step: -1: lists the bounds of all outputs; else moves that one by `distance`.
  void plan(int64_t moved, float distance) {
    moved_ = moved;
    distance_ = distance;
    next_ = 0;
    if (moved < 0) bounds_.clear();
  }
  /// Of an output: its bound, and whether it begins a term, or belongs to the one before.
  struct Bound {
    bool begins;
    double most;
  };
  const std::vector<Bound>& bounds() const { return bounds_; }

  void linear(TensorView x, const PackedWeight& weight, TensorView bias, TensorView out) override {
    CpuBackend::linear(x, weight, bias, out);
    pass(out, 1, [&](int64_t row, int64_t col) {
      const std::vector<float>& w = numbers(weight);
      double sum = 0;
      for (int64_t k = 0; k < x.cols(); ++k) {
        const float product = number(x, row, k) * w[static_cast<size_t>(k * out.cols() + col)];
        sum += std::abs(double{product});
      }
      return std::sqrt(2.0 * static_cast<double>(x.cols()) + kMostRanks) * kUnit * sum;
    });
  }
  void linear_add_rms_norm(const LinearAddNorm& args) override {
    Backend::linear_add_rms_norm(args);
  }
  void linear_silu_mul(TensorView x, const PackedWeight& weight, TensorView bias,
                       TensorView out) override {
    Buffer memory = allocate(static_cast<size_t>(x.rows() * weight.n()) * sizeof(float));
    const TensorView both(memory.data, DType::kF32, {x.rows(), weight.n()});
    linear(x, weight, bias, both);
    silu_mul(both, out);
  }
  void silu_mul(TensorView gate_up, TensorView out) override {
    CpuBackend::silu_mul(gate_up, out);
    pass(out, 1, [&](int64_t row, int64_t col) {
      return 16 * kUnit * std::abs(double{number(out, row, col)});
    });
  }
  void rms_norm(TensorView x, TensorView weight, float eps, TensorView out) override {
    CpuBackend::rms_norm(x, weight, eps, out);
    pass_norm(out);
  }
  void add_rms_norm(TensorView residual, TensorView delta, TensorView weight, float eps,
                    TensorView out) override {
    pass(delta, 1, [&](int64_t row, int64_t col) {
      return 2 * kUnit * std::abs(double{number(residual, row, col)} + number(delta, row, col));
    });
    CpuBackend::add_rms_norm(residual, delta, weight, eps, out);
    pass_norm(out);
  }
  void rope_kv_write(TensorView qkv, const QkvSpec& spec, const RopeSpec& rope,
                     TensorView rope_table, KvCache& cache, int32_t layer) override {
    qkv_.clear();
    for (int64_t row = 0; row < qkv.rows(); ++row) {
      qkv_.insert(qkv_.end(), qkv.row<float>(row), qkv.row<float>(row) + qkv.cols());
    }
    CpuBackend::rope_kv_write(qkv, spec, rope, rope_table, cache, layer);
  }
  void attention(TensorView q, const AttentionSpec& spec, const KvCache& cache, int32_t layer,
                 TensorView out) override {
    CpuBackend::attention(q, spec, cache, layer, out);
    pass(out, spec.head_dim,
         [&](int64_t row, int64_t col) { return attention_bound(spec, row, col); });
  }

 private:
  /// `together`: outputs side by side whose errors are one term.
  template <class BoundOf>
  void pass(const TensorView& out, int64_t together, const BoundOf& bound) {
    const int64_t count = out.rows() * out.cols();
    for (int64_t i = 0; i < count && moved_ < 0; ++i) {
      bounds_.push_back({i % together == 0, bound(i / out.cols(), i % out.cols())});
    }
    if (moved_ >= next_ && moved_ < next_ + count) {
      const int64_t i = moved_ - next_;
      out.row<float>(i / out.cols())[i % out.cols()] += distance_;
    }
    next_ += count;
  }
  void pass_norm(const TensorView& out) {
    pass(out, out.cols(), [&](int64_t row, int64_t col) {
      return (std::sqrt(2.0 * static_cast<double>(out.cols())) + 12) * kUnit *
             std::abs(double{number(out, row, col)});
    });
  }

  /// The weight [k, n], as its products with unit vectors are.
  const std::vector<float>& numbers(const PackedWeight& weight) {
    std::vector<float>& out = numbers_[&weight];
    if (!out.empty()) return out;
    const int64_t k = weight.k(), n = weight.n();
    std::vector<float> units(static_cast<size_t>(k * k));
    for (int64_t i = 0; i < k; ++i) units[static_cast<size_t>(i * k + i)] = 1;
    out.resize(static_cast<size_t>(k * n));
    CpuBackend::linear({units.data(), DType::kF32, {k, k}}, weight, {},
                       {out.data(), DType::kF32, {k, n}});
    return out;
  }

  double attention_bound(const AttentionSpec& spec, int64_t row, int64_t col) const {
    const int64_t d = spec.head_dim, heads = spec.num_heads, kv = spec.num_kv_heads;
    const int64_t head = col / d, shared = head / (heads / kv);
    const auto at = [&](int64_t of, int64_t place) {
      return double{qkv_[static_cast<size_t>(of * (heads + 2 * kv) * d + place)]};
    };
    double score = 0, value = 0;
    for (int64_t of = 0; of <= row; ++of) {
      double sum = 0;
      for (int64_t i = 0; i < d / 2; ++i) {  // rope turns columns i and i + d / 2
        const int64_t q = head * d + i, k = (heads + shared) * d + i;
        sum +=
            std::hypot(at(row, q), at(row, q + d / 2)) * std::hypot(at(of, k), at(of, k + d / 2));
      }
      score = std::max(score, sum * double{spec.scale});
      value = std::max(value, std::abs(at(of, (heads + kv + shared) * d + col % d)));
    }
    const double weight = std::sqrt(static_cast<double>(d + 20)) * score + 4;
    const double chains = 2 * std::sqrt(static_cast<double>(row + 1)) + 2;
    return std::sqrt(2.0) * (2 * weight + chains) * kUnit * value;
  }

  int64_t moved_ = -2, next_ = 0;
  float distance_ = 0;
  std::vector<Bound> bounds_;
  std::vector<float> qkv_;
  std::map<const PackedWeight*, std::vector<float>> numbers_;
};

std::vector<double> log_probabilities(const std::vector<float>& logits) {
  const double most = std::ranges::max(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - most);
  std::vector<double> out;
  for (const float logit : logits) out.push_back(double{logit} - most - std::log(sum));
  return out;
}

/// By how much the two runs' log-probabilities behind the prompt may differ, of each token.
std::vector<double> bounds_of(const std::string& folder, DType storage) {
  const auto prober = std::make_shared<Prober>();
  DecoderHarness harness(std::shared_ptr<Backend>(prober), folder, {.storage = storage});
  const auto logits = [&](int64_t moved, float distance) {
    prober->plan(moved, distance);
    harness.start(0, static_cast<int32_t>(kPrompt.size()));
    return harness.step({{.tokens = kPrompt}}).back();
  };
  const std::vector<float> base_logits = logits(-1, 0);
  const std::vector<double> base = log_probabilities(base_logits);
  const std::vector<Prober::Bound> bounds = prober->bounds();
  std::vector<double> squares(base.size()), term(base.size());
  const auto end_term = [&] {
    for (size_t i = 0; i < term.size(); ++i) {
      squares[i] += term[i] * term[i];
      term[i] = 0;
    }
  };
  constexpr float kDistance = 0x1p-7f;
  for (size_t at = 0; at < bounds.size(); ++at) {
    if (bounds[at].begins) end_term();
    if (bounds[at].most == 0) continue;
    const auto moved = log_probabilities(logits(static_cast<int64_t>(at), kDistance));
    for (size_t i = 0; i < base.size(); ++i) {
      term[i] += std::abs(moved[i] - base[i]) / double{kDistance} * bounds[at].most;
    }
  }
  end_term();
  double largest = 0;
  for (const float logit : base_logits) largest = std::max(largest, std::abs(double{logit}));
  for (double& square : squares) square = 1.01 * 6 * std::sqrt(square) + 64 * kUnit * largest;
  return squares;
}

/// The likeliest tokens behind the prompt, by number.
std::map<int32_t, float> top_logprobs(const std::string& folder, const char* dtype, int32_t ranks) {
  ModelOptions options;
  options.path = folder;
  options.device = "cpu";
  options.cpu_isa = kIsa;
  options.dtype = dtype;
  options.kv_cache_dtype = "float32";
  options.tensor_parallel_size = options.num_threads = ranks;
  options.num_kv_blocks = 16;
  Engine engine;
  engine.install_model("m", options);
  engine.start_model("m");
  RequestOptions request;
  request.prompt_token_ids = kPrompt;
  request.sampling = {.temperature = 0, .max_tokens = 1, .ignore_eos = true};
  request.sampling.logprobs = 20;
  const Output out = read_all(engine.submit("m", request).results());
  EXPECT_EQ(out.error_message, "");
  const auto& top = out.logprobs.at(0).top;
  return {top.begin(), top.end()};
}

TEST(EngineRanksBound, HoldsWhatRoundingsAllow) {
  for (const auto& [name, storage, dtype] : {std::tuple{"llama", DType::kF32, "float32"},
                                             {"llama", DType::kBF16, "bfloat16"},
                                             {"llama_bf16", DType::kBF16, "bfloat16"}}) {
    SCOPED_TRACE(::testing::Message() << name << " " << dtype);
    const std::string folder = load_golden_case(name).folder;
    const std::vector<double> bounds = bounds_of(folder, storage);
    EXPECT_LT(std::ranges::max(bounds), 0.05) << "so large that it says nothing";
    const auto one = top_logprobs(folder, dtype, 1);
    for (const int32_t ranks : {2, 4}) {
      if (std::string(name) == "llama_bf16" && ranks == 4) continue;  // it has two heads
      const auto several = top_logprobs(folder, dtype, ranks);
      for (const auto& [token, logprob] : one) {
        ASSERT_TRUE(several.contains(token)) << token;
        EXPECT_LE(std::abs(double{several.at(token)} - logprob), bounds[size_t(token)])
            << ranks << " ranks, token " << token;
      }
    }
  }
}

}  // namespace
}  // namespace headrace
