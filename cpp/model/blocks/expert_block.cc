#include "model/blocks/expert_block.h"

#include <optional>

#include "model/decoder/carver.h"

namespace headrace {

namespace {

struct ExpertScratch {
  TensorView ids;      // [T, top_k] i32
  TensorView weights;  // [T, top_k] f32
  TensorView shared;   // [T, H] what the shared MLP gives; without one [T, 0]
};

ExpertScratch place_rows(int32_t top_k, int64_t shared_columns, const StepLimits& limits,
                         Carver& carver) {
  ExpertScratch out;
  out.ids = carver.matrix(limits.rows, top_k, DType::kI32);
  out.weights = carver.matrix(limits.rows, top_k, DType::kF32);
  out.shared = carver.matrix(limits.rows, shared_columns, limits.activation);
  return out;
}

class ExpertBlock final : public FeedForward {
 public:
  ExpertBlock(const ExpertSources& sources, WeightReader& reader)
      : router_(sources.router),
        gate_(reader.matrix(sources.gate)),
        correction_(reader.vector(sources.correction)),
        gate_up_(reader.matrix(sources.gate_up)),
        down_(reader.matrix(sources.down)),
        shared_gate_(reader.vector(sources.shared_gate)) {
    if (sources.shared != nullptr) shared_.emplace(*sources.shared, reader);
  }

  const PackedWeight& first_weight() const override { return *gate_; }

  void place(const StepLimits& limits, Carver& carver) override {
    scratch_ = place_rows(router_.top_k, shared_ ? down_->n() : 0, limits, carver);
    if (shared_) shared_->place(limits, carver);
  }

  void add(const BlockContext& context, const StepRows& step, const NextBlock& next) override {
    Backend& backend = context.backend;
    const TensorView& x = step.normed;
    const TensorView ids = scratch_.ids.first_rows(x.rows());
    const TensorView weights = scratch_.weights.first_rows(x.rows());
    backend.route(x, *gate_, {}, correction_.view, router_, ids, weights);
    backend.expect(shared_ ? shared_->first_weight() : next.weight);
    backend.experts({x, ids, weights, *gate_up_, *down_, step.delta});
    if (shared_) add_shared(context, step, next);
    backend.add_rms_norm(step.residual, step.delta, next.norm, context.norm_eps, step.normed);
  }

 private:
  /// delta += what the shared MLP gives.
  void add_shared(const BlockContext& context, const StepRows& step, const NextBlock& next) const {
    const TensorView out = scratch_.shared.first_rows(step.rows());
    context.backend.expect(*shared_->down().weight);
    const TensorView gated = shared_->gate_and_up(context, step.normed);
    context.backend.expect(next.weight);
    run_linear(context, shared_->down(), gated, out);
    if (shared_gate_.view.data == nullptr) {
      context.backend.add(out, step.delta);
    } else {
      context.backend.add_gated(step.normed, shared_gate_.view, out, step.delta);
    }
  }

  RouterSpec router_;
  std::unique_ptr<PackedWeight> gate_;
  DeviceVector correction_;
  std::unique_ptr<PackedWeight> gate_up_, down_;
  DeviceVector shared_gate_;
  std::optional<GatedMlp> shared_;
  ExpertScratch scratch_;
};

}  // namespace

std::vector<MatrixSource*> ExpertSources::matrices() {
  std::vector<MatrixSource*> out{&gate, &gate_up, &down};
  if (shared == nullptr) return out;
  for (MatrixSource* source : shared->matrices()) out.push_back(source);
  return out;
}

std::vector<VectorSource*> ExpertSources::vectors() {
  std::vector<VectorSource*> out{&correction, &shared_gate};
  if (shared == nullptr) return out;
  for (VectorSource* source : shared->vectors()) out.push_back(source);
  return out;
}

void ExpertSources::measure(const StepLimits& limits, Carver& carver) const {
  place_rows(router.top_k, shared != nullptr ? down.n() : 0, limits, carver);
  if (shared != nullptr) shared->measure(limits, carver);
}

std::unique_ptr<FeedForward> ExpertSources::load(WeightReader& reader) const {
  return std::make_unique<ExpertBlock>(*this, reader);
}

}  // namespace headrace
