#include "model/blocks/gated_mlp.h"

#include "model/blocks/carver.h"
#include "model/blocks/join.h"
#include "model/sources/weight_slice.h"

namespace headrace {

namespace {

struct GatedMlpScratch {
  TensorView gated, gate_up;
};

GatedMlpScratch place_rows(int64_t width, bool gated, const StepLimits& limits, Carver& carver) {
  GatedMlpScratch out;
  out.gated = carver.matrix(limits.rows, width, limits.activation);
  out.gate_up =
      carver.matrix(limits.loras && gated ? limits.rows : 0, 2 * width, limits.activation);
  return out;
}

class GatedMlpBlock final : public FeedForward {
 public:
  GatedMlpBlock(const GatedMlpSources& sources, WeightReader& reader) : mlp_(sources, reader) {}

  const PackedWeight& first_weight() const override { return mlp_.first_weight(); }

  void place(const StepLimits& limits, Carver& carver) override { mlp_.place(limits, carver); }

  void add(const BlockContext& context, const StepRows& step, const Tail& tail) override {
    context.backend.expect(*mlp_.down().weight);
    const TensorView gated = mlp_.gate_and_up(context, step.input);
    context.backend.expect(tail.weight);
    join(context, mlp_.down(), gated, step, tail);
  }

 private:
  GatedMlp mlp_;
};

}  // namespace

GatedMlp::GatedMlp(const GatedMlpSources& sources, WeightReader& reader)
    : gate_up_(load_linear(reader, sources.gate_up)),
      down_(load_linear(reader, sources.down)),
      gate_(sources.gate),
      has_gate_(sources.gated()),
      width_(sources.width()) {}

void GatedMlp::place(const StepLimits& limits, Carver& carver) {
  const GatedMlpScratch scratch = place_rows(width_, has_gate_, limits, carver);
  gated_ = scratch.gated;
  gate_up_rows_ = scratch.gate_up;
  down_.gather = place_gather(down_.gathers, down_.weight->n(), down_.weight->k(), limits, carver);
}

TensorView GatedMlp::gate_and_up(const BlockContext& context, const TensorView& x) const {
  const TensorView out = gated_.first_rows(x.rows());
  if (!has_gate_) {
    run_linear(context, gate_up_, x, out);
    context.backend.activate(gate_.activation, out);
    return out;
  }
  const bool loras = gate_up_rows_.rows() > 0;
  run_gate_mul(context, gate_up_, gate_, x,
               loras ? gate_up_rows_.first_rows(x.rows()) : gate_up_rows_, out);
  return out;
}

void GatedMlpSources::share(const RankPlace& place) {
  const SourceRange own = input_range(down.matrix, place, "an intermediate size");
  std::vector<SourceRange> rows = {own};
  if (gated()) rows.push_back({width() + own.first, own.count});
  slice_rows(gate_up.matrix, rows);
  if (!gate_up.bias.empty()) gate_up.bias.ranges = rows;
  share_inputs(down, own, place);
}

void GatedMlpSources::measure(const StepLimits& limits, Carver& carver) const {
  place_rows(width(), gated(), limits, carver);
  place_gather(down.gathers, down.matrix.n(), down.matrix.k, limits, carver);
}

std::unique_ptr<FeedForward> GatedMlpSources::load(WeightReader& reader) const {
  return std::make_unique<GatedMlpBlock>(*this, reader);
}

}  // namespace headrace
