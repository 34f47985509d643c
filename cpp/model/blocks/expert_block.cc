#include "model/blocks/expert_block.h"

#include <optional>

#include "base/check.h"
#include "model/blocks/carver.h"
#include "model/blocks/join.h"
#include "model/sources/fold_order.h"
#include "model/sources/weight_slice.h"

namespace headrace {

namespace {

/// H hidden size, L columns of experts' rows.
struct RowScratch {
  TensorView latent, latent_out;  // [T, L] into the experts and out of them; if L is H [T, 0]
  TensorView shared;              // [T, H] what the shared MLP gives; without one [T, 0]
  TensorView sorted, sorted_out;  // [T, H] rows by modality; without groups for them [T, 0]
  TensorView normed;              // [T, H] what the router reads, then the experts; or [T, 0]
};

/// What of it a layer has.
struct RowUses {
  int64_t latent = 0;  ///< L; 0: H
  bool shared = false, vision = false, normed = false;
};

RowScratch place_rows(const RowUses& uses, int64_t hidden, const StepLimits& limits,
                      Carver& carver) {
  const auto& [latent, shared, vision, normed] = uses;
  RowScratch out;
  out.latent = carver.matrix(limits.rows, latent, limits.activation);
  out.latent_out = carver.matrix(limits.rows, latent, limits.activation);
  out.normed = carver.matrix(limits.rows, normed ? hidden : 0, limits.activation);
  out.shared = carver.matrix(limits.rows, shared ? hidden : 0, limits.activation);
  out.sorted = carver.matrix(limits.rows, vision ? hidden : 0, limits.activation);
  out.sorted_out = carver.matrix(limits.rows, vision ? hidden : 0, limits.activation);
  return out;
}

/// What a router chooses.
struct Choice {
  TensorView ids;      // [T, top_k] i32
  TensorView weights;  // [T, top_k] f32
};

Choice place_choice(int32_t top_k, const StepLimits& limits, Carver& carver) {
  Choice out;
  out.ids = carver.matrix(limits.rows, top_k, DType::kI32);
  out.weights = carver.matrix(limits.rows, top_k, DType::kF32);
  return out;
}

/// A group's weights and its place in the scratch memory.
class Group {
 public:
  Group(const ExpertGroup& sources, WeightReader& reader)
      : router_(sources.router),
        gate_(reader.matrix(sources.gate)),
        logit_bias_(reader.vector(sources.logit_bias)),
        correction_(reader.vector(sources.correction)),
        factors_(reader.vector(sources.factors)),
        gate_up_(reader.matrix(sources.gate_up)),
        down_(reader.matrix(sources.down)),
        gate_up_bias_(reader.vector(sources.gate_up_bias)),
        down_bias_(reader.vector(sources.down_bias)),
        activation_(sources.activation),
        first_(sources.first) {
    router_.factors = factors_.view;
  }

  const PackedWeight& first_weight() const { return *gate_; }
  int64_t hidden() const { return gate_->k(); }

  void place(const StepLimits& limits, Carver& carver) {
    choice_ = place_choice(router_.top_k, limits, carver);
  }

  /// out = what the group makes of x.
  void run(Backend& backend, const TensorView& x, const PackedWeight& next,
           const TensorView& out) const {
    run(backend, x, x, next, out);
  }
  /// out = what the experts that x chooses make of `rows`. `next`: the weight that is read behind.
  void run(Backend& backend, const TensorView& x, const TensorView& rows, const PackedWeight& next,
           const TensorView& out) const {
    choose(backend, x);
    run_chosen(backend, rows, next, out);
  }

  /// Both by themselves.
  void choose(Backend& backend, const TensorView& x) const {
    backend.route(x, *gate_, logit_bias_.view, correction_.view, router_,
                  choice_.ids.first_rows(x.rows()), choice_.weights.first_rows(x.rows()));
  }
  void run_chosen(Backend& backend, const TensorView& rows, const PackedWeight& next,
                  const TensorView& out) const {
    const TensorView ids = choice_.ids.first_rows(rows.rows());
    const TensorView weights = choice_.weights.first_rows(rows.rows());
    backend.expect(next);
    backend.experts({rows, ids, weights, *gate_up_, *down_, out, first_, activation_,
                     gate_up_bias_.view, down_bias_.view});
  }

 private:
  RouterSpec router_;
  std::unique_ptr<PackedWeight> gate_;
  DeviceVector logit_bias_, correction_, factors_;
  std::unique_ptr<PackedWeight> gate_up_, down_;
  DeviceVector gate_up_bias_, down_bias_;
  GateSpec activation_;
  int32_t first_;  // Experts::first
  Choice choice_;
};

/// BesideNorms with their weights.
struct LoadedNorms {
  LoadedNorms(const BesideNorms& sources, WeightReader& reader)
      : router(reader.vector(sources.router)),
        experts(reader.vector(sources.experts)),
        experts_post(reader.vector(sources.experts_post)),
        shared_post(reader.vector(sources.shared_post)),
        router_scale(sources.router_scale) {}

  DeviceVector router, experts, experts_post, shared_post;
  float router_scale;
};

class ExpertBlock final : public FeedForward {
 public:
  ExpertBlock(const ExpertSources& sources, WeightReader& reader)
      : experts_(sources.experts, reader) {
    latent_in_ = load_linear(reader, sources.latent_in);
    latent_out_ = load_linear(reader, sources.latent_out);
    if (sources.vision != nullptr) vision_.emplace(*sources.vision, reader);
    shared_gate_ = reader.vector(sources.shared_gate);
    if (sources.shared != nullptr) shared_.emplace(*sources.shared, reader);
    if (!sources.norms.empty()) norms_.emplace(sources.norms, reader);
  }

  const PackedWeight& first_weight() const override { return experts_.first_weight(); }

  void place(const StepLimits& limits, Carver& carver) override {
    experts_.place(limits, carver);
    if (vision_) vision_->place(limits, carver);
    const int64_t latent = has_latent() ? latent_in_.weight->n() : 0;
    rows_ = place_rows({latent, shared_.has_value(), vision_.has_value(), norms_.has_value()},
                       experts_.hidden(), limits, carver);
    if (shared_) shared_->place(limits, carver);
  }

  void add(const BlockContext& context, const StepRows& step, const Tail& tail) override {
    if (norms_) return add_beside(context, step, tail);
    Backend& backend = context.backend;
    const PackedWeight& behind = shared_ ? shared_->first_weight() : tail.weight;
    if (has_latent()) {
      run_latent(context, step, behind);
    } else if (!vision_ || context.modalities.num_vision() == 0) {
      experts_.run(backend, step.input, behind, step.delta);
    } else if (context.modalities.num_text() == 0) {
      vision_->run(backend, step.input, behind, step.delta);
    } else {
      run_apart(context, step, behind);
    }
    if (shared_ && shared_->down().gathers) return add_whole_shared(context, step, tail);
    if (shared_) add_shared(context, step, tail);
    join(context, step, tail);
  }

 private:
  bool has_latent() const { return latent_in_.weight != nullptr; }

  void run_latent(const BlockContext& context, const StepRows& step,
                  const PackedWeight& behind) const {
    const TensorView in = rows_.latent.first_rows(step.rows());
    const TensorView out = rows_.latent_out.first_rows(step.rows());
    run_linear(context, latent_in_, step.input, in);
    experts_.run(context.backend, step.input, in, *latent_out_.weight, out);
    context.backend.expect(behind);
    run_linear(context, latent_out_, out, step.delta);
  }

  /// Rows of both modalities: sorted, so that each group has its rows together, and sorted back.
  void run_apart(const BlockContext& context, const StepRows& step,
                 const PackedWeight& behind) const {
    Backend& backend = context.backend;
    const ModalityRows& rows = context.modalities;
    const int64_t text = rows.num_text(), vision = rows.num_vision();
    const TensorView x = rows_.sorted.first_rows(step.rows());
    const TensorView out = rows_.sorted_out.first_rows(step.rows());
    backend.gather_rows(step.input, rows.sorted(), x);
    experts_.run(backend, x.first_rows(text), vision_->first_weight(), out.first_rows(text));
    vision_->run(backend, x.rows_from(text, vision), behind, out.rows_from(text, vision));
    backend.gather_rows(out, rows.places(), step.delta);
  }

  /// delta = norm(experts(norm(residual))) + norm(MLP(input)). Norms are of what all ranks give.
  void add_beside(const BlockContext& context, const StepRows& step, const Tail& tail) const {
    Backend& backend = context.backend;
    const TensorView normed = rows_.normed.first_rows(step.rows());
    run_norm(context, step.residual, {norms_->router.view, {}}, normed);
    backend.scale(normed, norms_->router_scale, normed);
    experts_.choose(backend, normed);
    run_norm(context, step.residual, {norms_->experts.view, {}}, normed);
    experts_.run_chosen(backend, normed, shared_->first_weight(), step.delta);
    if (context.has_ranks) backend.all_reduce(step.delta);
    run_norm(context, step.delta, {norms_->experts_post.view, {}}, step.delta);
    const TensorView out = rows_.shared.first_rows(step.rows());
    backend.expect(*shared_->down().weight);
    const TensorView gated = shared_->gate_and_up(context, step.input);
    backend.expect(tail.weight);
    run_linear(context, shared_->down(), gated, out);
    if (context.has_ranks && !shared_->down().gathers) backend.all_reduce(out);
    run_norm(context, out, {norms_->shared_post.view, {}}, out);
    backend.add(out, step.delta);
    join(context, step, tail, DeltaPart::kWhole);
  }

  /// Every rank has all that the shared MLP gives: it is added to the ranks' sum.
  void add_whole_shared(const BlockContext& context, const StepRows& step, const Tail& tail) const {
    context.backend.all_reduce(step.delta);
    add_shared(context, step, tail);
    join(context, step, tail, DeltaPart::kWhole);
  }

  /// delta += what the shared MLP gives.
  void add_shared(const BlockContext& context, const StepRows& step, const Tail& tail) const {
    const TensorView out = rows_.shared.first_rows(step.rows());
    context.backend.expect(*shared_->down().weight);
    const TensorView gated = shared_->gate_and_up(context, step.input);
    context.backend.expect(tail.weight);
    run_linear(context, shared_->down(), gated, out);
    if (shared_gate_.view.data == nullptr) {
      context.backend.add(out, step.delta);
    } else {
      context.backend.add_gated(step.input, shared_gate_.view, out, step.delta);
    }
  }

  Group experts_;
  Linear latent_in_, latent_out_;
  std::optional<Group> vision_;
  DeviceVector shared_gate_;
  std::optional<GatedMlp> shared_;
  std::optional<LoadedNorms> norms_;
  RowScratch rows_;
};

}  // namespace

std::vector<MatrixSource*> ExpertSources::matrices() {
  std::vector<MatrixSource*> out = experts.matrices();
  out.insert(out.end(), {&latent_in.matrix, &latent_out.matrix});
  if (vision != nullptr) {
    for (MatrixSource* source : vision->matrices()) out.push_back(source);
  }
  if (shared == nullptr) return out;
  for (MatrixSource* source : shared->matrices()) out.push_back(source);
  return out;
}

std::vector<VectorSource*> ExpertSources::vectors() {
  std::vector<VectorSource*> out = experts.vectors();
  out.insert(out.end(), {&latent_in.bias, &latent_out.bias});
  if (vision != nullptr) {
    for (VectorSource* source : vision->vectors()) out.push_back(source);
  }
  out.push_back(&shared_gate);
  for (VectorSource* source : norms.vectors()) out.push_back(source);
  if (shared == nullptr) return out;
  for (VectorSource* source : shared->vectors()) out.push_back(source);
  return out;
}

namespace {

void share_experts(const RankPlace& place, ExpertGroup& group) {
  const int32_t experts = group.router.num_experts, own = experts / place.count;
  if (experts % place.count != 0) {
    throw_error(ErrorCode::kUnsupported, "the model has ", experts, " experts in a layer, which ",
                place.count, " devices can't share equally: set tensor_parallel_size to a divisor ",
                "of ", experts, ", or leave enable_expert_parallel out.");
  }
  group.first = place.index * own;
  for (VectorSource* bias : {&group.gate_up_bias, &group.down_bias}) {
    const int64_t each = bias->n() / experts;
    if (!bias->empty()) bias->ranges = {{group.first * each, own * each}};
  }
  for (MatrixSource* source : {&group.gate_up, &group.down}) {
    slice_experts(*source, {group.first, own});
  }
}

/// Some inner features of each expert. Its result is a part of a sum: the first rank adds the bias.
void share_widths(const RankPlace& place, ExpertGroup& group) {
  const int64_t width = group.down.k, outputs = group.gate_up.n();
  const SourceRange own = input_range(group.down, place, "an intermediate size");
  std::vector<SourceRange> rows{own};
  if (outputs == 2 * width) rows.push_back({width + own.first, own.count});
  if (!group.gate_up_bias.empty()) {
    for (int32_t expert = 0; expert < group.gate_up.experts; ++expert) {
      for (const SourceRange& range : rows) {
        group.gate_up_bias.ranges.push_back({expert * outputs + range.first, range.count});
      }
    }
  }
  if (place.index > 0) group.down_bias = {};
  slice_rows(group.gate_up, rows);
  slice_inputs(group.down, own);
}

}  // namespace

// Adapters may change shared experts: they keep their order.
void ExpertSources::fold_orders() {
  fold_order(experts.gate_up, experts.down);
  if (vision != nullptr) fold_order(vision->gate_up, vision->down);
}

void ExpertSources::share(const RankPlace& place) {
  const auto share_group = place.whole_experts ? share_experts : share_widths;
  share_group(place, experts);
  if (vision != nullptr) share_group(place, *vision);
  if (place.index > 0) latent_out.bias = {};  // a rank's rows are a part of a sum
  if (shared != nullptr) shared->share(place);
}

void ExpertSources::measure(const StepLimits& limits, Carver& carver) const {
  place_choice(experts.router.top_k, limits, carver);
  if (vision != nullptr) place_choice(vision->router.top_k, limits, carver);
  place_rows({latent_in.matrix.n(), shared != nullptr, vision != nullptr, !norms.empty()},
             experts.gate.k, limits, carver);
  if (shared != nullptr) shared->measure(limits, carver);
}

std::unique_ptr<FeedForward> ExpertSources::load(WeightReader& reader) const {
  return std::make_unique<ExpertBlock>(*this, reader);
}

}  // namespace headrace
