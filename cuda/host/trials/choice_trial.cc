#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "backend/reference/reference_experts.h"
#include "base/check.h"
#include "cuda/host/trials/kernel_trials.h"
#include "cuda/host/trials/trial.h"

namespace headrace::cuda {

namespace {

constexpr int64_t kRows = 18, kInner = 136, kTopK = 3, kCols = 40;
constexpr int32_t kExperts = 24, kTileRows = 2;
constexpr int64_t kPairs = kRows * kTopK;
constexpr int64_t kTiles = most_expert_tiles(kRows, kTopK, kExperts, kTileRows);
constexpr float kOff = 1e-5f;

struct ChoiceCase {
  const char* name;
  DType dtype;
  bool bias, correction;
  RouterSpec spec;
};
constexpr ChoiceCase kCases[] = {
    {"softmax", DType::kBF16, false, false, {.num_experts = kExperts, .top_k = kTopK}},
    {"sigmoids of groups",
     DType::kF16,
     false,
     true,
     {.score = RouterSpec::Score::kSigmoid,
      .num_experts = kExperts,
      .top_k = kTopK,
      .num_groups = 4,
      .top_groups = 2,
      .norm_eps = 1e-20f,
      .scale = 2.5f}},
    {"softmax of the chosen",
     DType::kBF16,
     true,
     false,
     {.score = RouterSpec::Score::kSoftmaxAfterTopK,
      .num_experts = kExperts,
      .top_k = kTopK,
      .normalize = false}}};

/// Numbers are small multiples of powers of two, so that logits are exact: who is chosen is sure.
class ChoiceTrial {
 public:
  ChoiceTrial(CudaContext& context, const ExpertOps& ops)
      : ops_(ops),
        x_(inputs_.take(2 * kRows * kInner)),
        gate_(inputs_.take(sizeof(float) * kExperts * kInner)),
        bias_(inputs_.take(sizeof(float) * kExperts)),
        correction_(inputs_.take(sizeof(float) * kExperts)),
        pairs_(inputs_.take(2 * kPairs * kCols)),
        logits_(outputs_.take(sizeof(float) * kRows * kExperts)),
        ids_(outputs_.take(sizeof(int32_t) * kPairs)),
        weights_(outputs_.take(sizeof(float) * kPairs)),
        pair_rows_(outputs_.take(sizeof(int32_t) * kPairs)),
        places_(outputs_.take(sizeof(int32_t) * kPairs)),
        tiles_(outputs_.take(sizeof(ExpertTile) * kTiles)),
        sums_(outputs_.take(2 * kRows * kCols)),
        trial_(context, inputs_.bytes(), outputs_.bytes()) {}

  std::string run() {
    for (const ChoiceCase& one : kCases) {
      make_inputs(one);
      for (const char* how : kTrialRuns) {
        trial_.clear_outputs();
        trial_.run(&one - kCases, [&] { launch(one); });
        trial_.download();
        const std::string why = compare(one);
        if (!why.empty()) return str_cat(why, " with ", one.name, how);
      }
    }
    return "";
  }

 private:
  static float small(std::mt19937& random) {
    return static_cast<float>(static_cast<int32_t>(random() % 9) - 4);
  }

  void make_inputs(const ChoiceCase& one) {
    std::mt19937 random(10);
    std::byte* const to = trial_.staging();
    for (int64_t i = 0; i < kRows * kInner; ++i) {
      const float x = small(random);
      const uint16_t bits = one.dtype == DType::kBF16 ? f32_to_bf16(x) : f32_to_f16(x);
      std::memcpy(to + x_ + 2 * i, &bits, sizeof bits);
    }
    auto* const gate = reinterpret_cast<float*>(to + gate_);
    std::generate_n(gate, kExperts * kInner, [&] { return small(random) / 64.0f; });
    for (const size_t place : {bias_, correction_}) {
      std::generate_n(reinterpret_cast<float*>(to + place), kExperts,
                      [&] { return small(random) / 16.0f; });
    }
    std::generate_n(reinterpret_cast<uint16_t*>(to + pairs_), kPairs * kCols,
                    [&] { return random_half(random); });
    kept_.assign(to, to + inputs_.bytes());
    trial_.upload();
  }

  template <class T>
  T* out(size_t place) const {
    return reinterpret_cast<T*>(trial_.outputs() + place);
  }

  void launch(const ChoiceCase& one) {
    const std::byte* const in = trial_.inputs();
    const auto vector = [&](size_t place) { return reinterpret_cast<const float*>(in + place); };
    const Stream stream = trial_.context().stream();
    ops_.route({.dtype = one.dtype,
                .x = {in + x_, kRows, kInner, kInner},
                .gate = vector(gate_),
                .gate_stride = kInner,
                .bias = one.bias ? vector(bias_) : nullptr,
                .correction = one.correction ? vector(correction_) : nullptr,
                .spec = one.spec,
                .logits = out<float>(logits_),
                .ids = out<int32_t>(ids_),
                .ids_stride = kTopK,
                .weights = out<float>(weights_),
                .weights_stride = kTopK},
               stream);
    ops_.sort_pairs({.ids = out<int32_t>(ids_),
                     .ids_stride = kTopK,
                     .rows = kRows,
                     .top_k = kTopK,
                     .experts = kExperts,
                     .tile_rows = kTileRows,
                     .pair_rows = out<int32_t>(pair_rows_),
                     .places = out<int32_t>(places_),
                     .tiles = out<ExpertTile>(tiles_)},
                    stream);
    ops_.add_experts({.dtype = one.dtype,
                      .pairs = {in + pairs_, kPairs, kCols, kCols},
                      .places = out<int32_t>(places_),
                      .weights = out<float>(weights_),
                      .weights_stride = kTopK,
                      .top_k = kTopK,
                      .out = {out<std::byte>(sums_), kRows, kCols, kCols}},
                     stream);
  }

  std::string compare(const ChoiceCase& one) const {
    if (!choice_is_right(one)) return "other experts are chosen";
    if (!order_is_right()) return "pairs are sorted wrongly";
    return sums_are_right(one) ? "" : "experts are added wrongly";
  }

  template <class T>
  const T* found(size_t place) const {
    return reinterpret_cast<const T*>(trial_.staging() + place);
  }

  bool choice_is_right(const ChoiceCase& one) const {
    const auto vector = [&](size_t place) {
      return reinterpret_cast<const float*>(kept_.data() + place);
    };
    std::vector<float> logits(kExperts);
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t e = 0; e < kExperts; ++e) {
        float sum = one.bias ? vector(bias_)[e] : 0.0f;
        for (int64_t k = 0; k < kInner; ++k) {
          sum += vector(gate_)[e * kInner + k] *
                 half_at(one.dtype, kept_.data() + x_, row * kInner + k);
        }
        logits[static_cast<size_t>(e)] = sum;
      }
      int32_t ids[kTopK];
      float weights[kTopK];
      reference_route_row(one.spec, logits, one.correction ? vector(correction_) : nullptr, ids,
                          weights);
      for (int64_t i = 0; i < kTopK; ++i) {
        const float weight = found<float>(weights_)[row * kTopK + i];
        const bool near = std::abs(weight - weights[i]) <= kOff * one.spec.scale;
        if (found<int32_t>(ids_)[row * kTopK + i] != ids[i] || !near) return false;
      }
    }
    return true;
  }

  /// By expert, then by row, in tiles of one expert's.
  bool order_is_right() const {
    int32_t place = 0;
    const ExpertTile* tile = found<ExpertTile>(tiles_);
    const ExpertTile* const end = tile + kTiles;
    for (int32_t e = 0; e < kExperts; ++e) {
      const int32_t first = place;
      for (int32_t i = 0; i < kPairs; ++i) {
        if (found<int32_t>(ids_)[i] != e) continue;
        if (found<int32_t>(places_)[i] != place) return false;
        if (found<int32_t>(pair_rows_)[place++] != i / kTopK) return false;
      }
      for (int32_t at = first; at < place; at += kTileRows, ++tile) {
        const bool same = tile != end && tile->expert == e && tile->first == at &&
                          tile->rows == std::min(kTileRows, place - at);
        if (!same) return false;
      }
    }
    return std::all_of(tile, end, [](const ExpertTile& rest) { return rest.rows == 0; });
  }

  bool sums_are_right(const ChoiceCase& one) const {
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t col = 0; col < kCols; ++col) {
        float sum = 0.0f;
        for (int64_t i = row * kTopK; i < (row + 1) * kTopK; ++i) {
          const int64_t at = found<int32_t>(places_)[i] * kCols + col;
          sum = std::fma(found<float>(weights_)[i], half_at(one.dtype, kept_.data() + pairs_, at),
                         sum);
        }
        const float got = half_at(one.dtype, trial_.staging() + sums_, row * kCols + col);
        if (got != rounded_to(one.dtype, sum)) return false;
      }
    }
    return true;
  }

  const ExpertOps& ops_;
  TrialPlaces inputs_, outputs_;
  size_t x_, gate_, bias_, correction_, pairs_;                        // of inputs
  size_t logits_, ids_, weights_, pair_rows_, places_, tiles_, sums_;  // of outputs
  std::vector<std::byte> kept_;                                        // inputs
  Trial trial_;
};

}  // namespace

std::string try_choices(CudaContext& context, const ExpertOps& ops) {
  return guarded(context, [&] { return ChoiceTrial(context, ops).run(); });
}

}  // namespace headrace::cuda
