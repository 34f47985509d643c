#pragma once

// What Backend::route() and Backend::experts() are told: mixture-of-experts layers.

#include <cstdint>

#include "backend/contract/activation.h"
#include "backend/contract/packed_weight.h"
#include "tensor/tensor_view.h"

namespace headrace {

inline constexpr int32_t kMaxExperts = 1024;
inline constexpr int32_t kMaxTopExperts = 64;

/// How a row chooses its experts, in this order (float32):
///   1. l = x . gate (+ logit_bias)
///   2. p = the scores of l
///   3. c = p (+ correction), which decides the choice alone
///   4. of several groups keep the `top_groups` best, by the sum of a group's two largest c, or,
///      with `by_best`, by its largest (so also where it has only one)
///   5. choose the `top_k` largest c of what was kept
///   6. weights w = p of those chosen; of kSoftmaxAfterTopK the softmax of their l
///   7. normalize: w /= max(sum of w, norm_min) + norm_eps
///   8. w *= scale
///   9. w *= factors of the expert, if there are any
/// The lowest number wins a tie, of experts and of groups. A c that is NaN counts as -infinity.
struct RouterSpec {
  enum class Score : uint8_t {
    kSoftmax,           ///< over all experts
    kSigmoid,           ///< of each
    kSoftmaxAfterTopK,  ///< p = l
  };
  Score score = Score::kSoftmax;
  int32_t num_experts = 0;  ///< 1 to kMaxExperts
  int32_t top_k = 0;        ///< 1 to min(num_experts, kMaxTopExperts)
  int32_t num_groups = 1;   ///< of neighbours, equally large
  int32_t top_groups = 1;   ///< hold top_k experts or more; at most kMaxTopExperts
  bool by_best = false;     ///< how groups are compared
  bool normalize = true;
  float norm_min = 0.0f;
  float norm_eps = 0.0f;
  float scale = 1.0f;
  TensorView factors = {};  ///< [num_experts] f32, the backend's memory; data == null: none
};

/// What experts() works on.
struct Experts {
  TensorView x;        ///< [T, H] act
  TensorView ids;      ///< [T, top_k] i32, as route() gives them
  TensorView weights;  ///< [T, top_k] f32
  /// [2 * I, H] for each expert, packed with kGateUp; of experts without gates up alone, [I, H],
  /// packed with kLinear. Codes may be reordered, each expert's in its own way.
  const PackedWeight& gate_up;
  const PackedWeight& down;  ///< [H, I] for each
  TensorView out;            ///< [T, H] act
  /// -1: the weights are of all experts. Else they are of those from this number on (a rank's), and
  /// what other experts would give is left out of the sum: none of its own gives 0.
  int32_t first = -1;
  /// Without gates its activation is all that counts: kRelu2.
  GateSpec gate = {};
  /// [E * rows of gate_up] and [E * H] act for the E experts of the weights, each may be empty.
  TensorView gate_up_bias = {}, down_bias = {};

  bool gated() const noexcept { return gate_up.n() != down.k(); }
  /// Which of its matrices an id means; none: -1.
  int32_t own(int32_t id, int64_t experts) const noexcept {
    if (first < 0) return id;
    return id >= first && id - first < experts ? id - first : -1;
  }
};

}  // namespace headrace
