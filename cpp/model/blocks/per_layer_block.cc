#include "model/blocks/per_layer_block.h"

#include "model/blocks/carver.h"
#include "model/blocks/join.h"

namespace headrace {

namespace {

class PerLayerBlock final : public FeedForward {
 public:
  PerLayerBlock(const PerLayerSources& sources, WeightReader& reader)
      : gate_(load_linear(reader, sources.gate)),
        projection_(load_linear(reader, sources.projection)),
        activation_(sources.activation),
        layer_(sources.layer) {}

  const PackedWeight& first_weight() const override { return *gate_.weight; }

  void place(const StepLimits& limits, Carver& carver) override {
    gated_ = carver.matrix(limits.rows, gate_.weight->n(), limits.activation);
  }

  void add(const BlockContext& context, const StepRows& step, const Tail& tail) override {
    const TensorView gated = gated_.first_rows(step.rows());
    context.backend.expect(*projection_.weight);
    run_linear(context, gate_, step.input, gated);
    context.backend.activate(activation_, gated);
    context.backend.multiply(gated, step.per_layer.columns(layer_ * gated.cols(), gated.cols()),
                             gated);
    context.backend.expect(tail.weight);
    run_linear(context, projection_, gated, step.delta);
    join(context, step, tail, DeltaPart::kWhole);
  }

 private:
  Linear gate_, projection_;
  Activation activation_;
  int32_t layer_;
  TensorView gated_;  // [T, P]
};

}  // namespace

void PerLayerSources::measure(const StepLimits& limits, Carver& carver) const {
  carver.matrix(limits.rows, gate.matrix.n(), limits.activation);
}

std::unique_ptr<FeedForward> PerLayerSources::load(WeightReader& reader) const {
  return std::make_unique<PerLayerBlock>(*this, reader);
}

}  // namespace headrace
