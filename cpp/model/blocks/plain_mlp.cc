#include "model/blocks/plain_mlp.h"

#include "model/blocks/carver.h"
#include "model/blocks/join.h"
#include "model/sources/weight_slice.h"

namespace headrace {

namespace {

class PlainMlpBlock final : public FeedForward {
 public:
  PlainMlpBlock(const PlainMlpSources& sources, WeightReader& reader)
      : up_(load_linear(reader, sources.up)),
        down_(load_linear(reader, sources.down)),
        activation_(sources.activation) {}

  const PackedWeight& first_weight() const override { return *up_.weight; }

  void place(const StepLimits& limits, Carver& carver) override {
    wide_ = carver.matrix(limits.rows, up_.weight->n(), limits.activation);
    down_.gather =
        place_gather(down_.gathers, down_.weight->n(), down_.weight->k(), limits, carver);
  }

  void add(const BlockContext& context, const StepRows& step, const Tail& tail) override {
    context.backend.expect(*down_.weight);
    const TensorView wide = wide_.first_rows(step.rows());
    run_linear(context, up_, step.input, wide);
    context.backend.activate(activation_, wide);
    context.backend.expect(tail.weight);
    join(context, down_, wide, step, tail);
  }

 private:
  Linear up_, down_;
  Activation activation_;
  TensorView wide_;  // [T, I]
};

}  // namespace

void PlainMlpSources::share(const RankPlace& place) {
  const SourceRange own = input_range(down.matrix, place, "an intermediate size");
  slice_rows(up.matrix, {own});
  if (!up.bias.empty()) up.bias.ranges = {own};
  share_inputs(down, own, place);
}

void PlainMlpSources::measure(const StepLimits& limits, Carver& carver) const {
  carver.matrix(limits.rows, up.matrix.n(), limits.activation);
  place_gather(down.gathers, down.matrix.n(), down.matrix.k, limits, carver);
}

std::unique_ptr<FeedForward> PlainMlpSources::load(WeightReader& reader) const {
  return std::make_unique<PlainMlpBlock>(*this, reader);
}

}  // namespace headrace
