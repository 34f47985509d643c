#include "cpp/engine/ranks/rank_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/cpu_isa.h"
#include "cpp/model/decoder_harness.h"
#include "fakes/fake_engine.h"

namespace headrace {

namespace {

constexpr double kUnit = 0x1p-24;
const std::vector<int32_t> kPrompt = {5, 17, 3, 29};

float number(const TensorView& x, int64_t row, int64_t col) { return x.row<float>(row)[col]; }

/// Computes a step, and moves one of its ops' outputs; or lists how far each may be off.
class Prober final : public CpuBackend {
 public:
  /// `activations`: of the runs.
  explicit Prober(DType activations)
      : CpuBackend(select_cpu_isa(kBoundIsa), 1, 0),
        rounding_(activations == DType::kBF16 ? 0x1p-8 / std::sqrt(3.0) : 0.0) {}

  /// Whose linear of that many features is the head.
  void set_head(int64_t vocab) { vocab_ = vocab; }

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

  std::unique_ptr<PackedWeight> pack_weight(const WeightSpec& spec) override {
    auto out = CpuBackend::pack_weight(spec);
    if (spec.experts == 1) return out;
    WeightSpec one = spec;
    one.experts = 1;
    const auto parts = static_cast<std::ptrdiff_t>(spec.parts.size()) / spec.experts;
    for (int32_t expert = 0; expert < spec.experts; ++expert) {
      const auto first = spec.parts.begin() + expert * parts;
      one.parts.assign(first, first + parts);
      experts_[out.get()].push_back(CpuBackend::pack_weight(one));
    }
    return out;
  }

  void linear(TensorView x, const PackedWeight& weight, TensorView bias, TensorView out) override {
    CpuBackend::linear(x, weight, bias, out);
    const double terms = 2.0 * static_cast<double>(x.cols()) + kMostBoundRanks;
    pass(out, 1, [&](int64_t row, int64_t col) {
      const double exact = std::sqrt(terms) * kUnit * size(x, row, weight, col);
      if (rounding_ == 0 || out.cols() == vocab_) return exact;
      return std::hypot(exact, parts_rounding(x, row, weight, col), twice(number(out, row, col)));
    });
  }
  void linear_add_rms_norm(const LinearAddNorm& args) override {
    Backend::linear_add_rms_norm(args);
  }
  void linear_gate_mul(TensorView x, const PackedWeight& weight, TensorView bias,
                       const GateSpec& spec, TensorView out) override {
    Buffer memory = allocate(static_cast<size_t>(x.rows() * weight.n()) * sizeof(float));
    const TensorView both(memory.data, DType::kF32, {x.rows(), weight.n()});
    linear(x, weight, bias, both);
    gate_mul(both, spec, out);
  }
  void gate_mul(TensorView gate_up, const GateSpec& spec, TensorView out) override {
    CpuBackend::gate_mul(gate_up, spec, out);
    pass(out, 1, [&](int64_t row, int64_t col) {
      const double y = number(out, row, col);
      return std::hypot(16 * kUnit * y, twice(y));
    });
  }
  void rms_norm(TensorView x, TensorView weight, float eps, TensorView out) override {
    CpuBackend::rms_norm(x, weight, eps, out);
    pass_norm(out);
  }
  void add_rms_norm(TensorView residual, TensorView delta, TensorView weight, float eps,
                    TensorView out) override {
    pass(delta, 1, [&](int64_t row, int64_t col) {
      const double y = double{number(residual, row, col)} + number(delta, row, col);
      return std::hypot(2 * kUnit * y, twice(y));
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
    pass_turned(qkv, spec);
    CpuBackend::rope_kv_write(qkv, spec, rope, rope_table, cache, layer);
  }
  void attention(TensorView q, const AttentionSpec& spec, const KvCache& cache, int32_t layer,
                 TensorView out) override {
    CpuBackend::attention(q, spec, cache, layer, out);
    pass(out, spec.head_dim,
         [&](int64_t row, int64_t col) { return attention_bound(spec, row, col); });
    pass_rounding(out);
    pass_probabilities(spec, out);
  }
  void route(TensorView x, const PackedWeight& gate, TensorView logit_bias, TensorView correction,
             const RouterSpec& spec, TensorView ids, TensorView weights) override {
    CpuBackend::route(x, gate, logit_bias, correction, spec, ids, weights);
    const double terms = 2.0 * static_cast<double>(x.cols()) + kMostBoundRanks;
    pass(weights, 1, [&](int64_t row, int64_t col) {
      double most = 0;
      for (int64_t e = 0; e < gate.n(); ++e) most = std::max(most, size(x, row, gate, e));
      return (4 * std::sqrt(terms) * most + 20) * kUnit *
             std::abs(double{number(weights, row, col)});
    });
  }
  /// An expert's part of all experts' biases, where there are any.
  static TensorView own_bias(const TensorView& bias, size_t expert, int64_t n) {
    if (bias.data == nullptr) return {};
    return TensorView(bias.as<float>() + static_cast<int64_t>(expert) * n, DType::kF32, {n});
  }
  /// One by one, so that what lies between is moved, too.
  void experts(const Experts& args) override {
    std::vector<float> inner(static_cast<size_t>(args.down.k()));
    std::vector<float> one(static_cast<size_t>(args.out.cols()));
    std::vector<double> sizes(static_cast<size_t>(args.out.rows() * args.out.cols()));
    const TensorView h(inner.data(), DType::kF32, {1, args.down.k()});
    const TensorView y(one.data(), DType::kF32, {1, args.out.cols()});
    for (int64_t row = 0; row < args.x.rows(); ++row) {
      float* const out = args.out.row<float>(row);
      std::fill(out, out + args.out.cols(), 0.0f);
      for (int64_t i = 0; i < args.ids.cols(); ++i) {
        const auto expert = static_cast<size_t>(args.ids.row<int32_t>(row)[i]);
        const PackedWeight& down = *experts_.at(&args.down)[expert];
        linear_gate_mul(args.x.rows_from(row, 1), *experts_.at(&args.gate_up)[expert],
                        own_bias(args.gate_up_bias, expert, args.gate_up.n()), args.gate, h);
        linear(h, down, own_bias(args.down_bias, expert, down.n()), y);
        const float share = number(args.weights, row, i);
        for (int64_t col = 0; col < args.out.cols(); ++col) {
          out[col] += share * one[static_cast<size_t>(col)];
          sizes[static_cast<size_t>(row * args.out.cols() + col)] +=
              double{share} * size(h, 0, down, col);
        }
      }
    }
    pass(args.out, 1, [&](int64_t row, int64_t col) {
      return std::sqrt(2.0 * static_cast<double>(args.ids.cols() + kMostBoundRanks)) * kUnit *
             sizes[static_cast<size_t>(row * args.out.cols() + col)];
    });
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
    pass_rounding(out);
  }
  /// Of 16-bit results: each of its own.
  void pass_rounding(const TensorView& out) {
    pass(out, 1, [&](int64_t row, int64_t col) { return twice(number(out, row, col)); });
  }

  /// Each key's probability, in 16 bits: a result moves along the key's values.
  void pass_probabilities(const AttentionSpec& spec, const TensorView& out) {
    const int64_t d = spec.head_dim, heads = spec.num_heads, kv = spec.num_kv_heads;
    for (int64_t row = 1; row < out.rows() && rounding_ > 0; ++row) {  // an only key's is 1
      for (int64_t i = 0; i < heads * (row + 1); ++i) {
        const int64_t head = i % heads, key = i / heads;
        const float* const values =
            qkv_.data() + key * (heads + 2 * kv) * d + (heads + kv + head / (heads / kv)) * d;
        if (moved_ < 0) bounds_.push_back({true, std::sqrt(2.0) * rounding_});
        for (int64_t col = 0; moved_ == next_ && col < d; ++col) {
          out.row<float>(row)[head * d + col] += distance_ * values[col];
        }
        ++next_;
      }
    }
  }
  /// Queries, keys and values as attention reads them, in 16 bits: rope turns columns i and
  /// i + d / 2 of queries and keys, so that each is off by what both are.
  void pass_turned(const TensorView& qkv, const QkvSpec& spec) {
    const int64_t d = spec.head_dim, turned = (spec.num_heads + spec.num_kv_heads) * d;
    pass(qkv, 1, [&](int64_t row, int64_t col) {
      const double own = number(qkv, row, col);
      if (col >= turned) return twice(own);
      const int64_t other = col % d < d / 2 ? col + d / 2 : col - d / 2;
      return twice(std::hypot(own, double{number(qkv, row, other)}));
    });
  }

  /// The sum of |x_k w_k| of an output.
  double size(const TensorView& x, int64_t row, const PackedWeight& weight, int64_t col) {
    const std::vector<float>& w = numbers(weight);
    double sum = 0;
    for (int64_t k = 0; k < x.cols(); ++k) {
      sum += std::abs(double{number(x, row, k) * w[static_cast<size_t>(k * weight.n() + col)]});
    }
    return sum;
  }
  /// Of a number that is rounded to 16 bits, by half a unit of its last place at most.
  double rounded(double y) const {
    return y == 0 ? 0.0 : rounding_ * std::exp2(std::floor(std::log2(std::abs(y))));
  }
  /// In both runs.
  double twice(double y) const { return std::sqrt(2.0) * rounded(y); }
  /// Of an output's parts, each of a rank.
  double parts_rounding(const TensorView& x, int64_t row, const PackedWeight& weight, int64_t col) {
    const std::vector<float>& w = numbers(weight);
    double most = 0;
    for (int64_t count = 2; count <= kMostBoundRanks; ++count) {
      std::vector<double> sums(static_cast<size_t>(count));
      for (int64_t k = 0; k < x.cols(); ++k) {
        sums[static_cast<size_t>(k * count / x.cols())] +=
            double{number(x, row, k)} * w[static_cast<size_t>(k * weight.n() + col)];
      }
      double squares = 0;
      for (const double sum : sums) squares += rounded(sum) * rounded(sum);
      most = std::max(most, squares);
    }
    return std::sqrt(most);
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

  const double rounding_;
  int64_t vocab_ = 0;
  int64_t moved_ = -2, next_ = 0;
  float distance_ = 0;
  std::vector<Bound> bounds_;
  std::vector<float> qkv_;
  std::map<const PackedWeight*, std::vector<float>> numbers_;
  std::map<const PackedWeight*, std::vector<std::unique_ptr<PackedWeight>>> experts_;
};

std::vector<double> log_probabilities(const std::vector<float>& logits) {
  const double most = std::ranges::max(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - most);
  std::vector<double> out;
  for (const float logit : logits) out.push_back(double{logit} - most - std::log(sum));
  return out;
}

}  // namespace

std::vector<double> rank_bounds(const std::string& folder, DType storage, DType activations) {
  const auto prober = std::make_shared<Prober>(activations);
  DecoderHarness harness(std::shared_ptr<Backend>(prober), folder, {.storage = storage});
  prober->set_head(harness.config().vocab_size);
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
  const double second_order = activations == DType::kF32 ? 1.01 : 1.25;
  for (double& square : squares) {
    square = second_order * 6 * std::sqrt(square) + 64 * kUnit * largest;
  }
  return squares;
}

std::map<int32_t, float> likeliest_tokens(Engine& engine) {
  RequestOptions request;
  request.prompt_token_ids = kPrompt;
  request.sampling = {.temperature = 0, .max_tokens = 1, .ignore_eos = true};
  request.sampling.logprobs = 20;
  const Output out = testing::read_all(engine.submit("m", request).results());
  EXPECT_EQ(out.error_message, "");
  const auto& top = out.logprobs.at(0).top;
  return {top.begin(), top.end()};
}

void expect_within(const std::vector<double>& bounds, const std::map<int32_t, float>& one,
                   const std::map<int32_t, float>& several) {
  float least = 0;
  for (const auto& [token, logprob] : several) least = std::min(least, logprob);
  for (const auto& [token, logprob] : one) {
    const auto found = several.find(token);
    // One that is missing there is below all that aren't.
    const double error = found == several.end() ? std::max(0.0, double{logprob} - least)
                                                : std::abs(double{found->second} - logprob);
    EXPECT_LE(error, bounds[static_cast<size_t>(token)]) << "token " << token;
  }
}

}  // namespace headrace
