#include "model/blocks/states/delta_block.h"

#include "base/check.h"
#include "model/blocks/carver.h"
#include "model/blocks/join.h"
#include "model/blocks/states/conv_block.h"
#include "model/sources/weight_slice.h"

namespace headrace {

namespace {

struct DeltaScratch {
  TensorView in, logits, qkv, gates;
};

DeltaScratch place_rows(const DeltaSpec& heads, const StepLimits& limits, Carver& carver) {
  const int64_t gates = 2 * int64_t{heads.value_heads};
  DeltaScratch out;
  out.in =
      carver.matrix(limits.rows, heads.qkv_columns() + heads.value_columns(), limits.activation);
  out.logits = carver.matrix(limits.rows, gates, limits.activation);
  out.qkv = carver.matrix(limits.rows, heads.qkv_columns(), limits.activation);
  out.gates = carver.matrix(limits.rows, gates, DType::kF32);
  return out;
}

class DeltaBlock final : public Mixer {
 public:
  DeltaBlock(const DeltaSources& sources, WeightReader& reader, int32_t layer)
      : heads_(sources.heads),
        conv_{.channels = static_cast<int32_t>(heads_.qkv_columns()),
              .kernel = sources.kernel,
              .silu = true},
        gated_norm_{.group = heads_.value_dim, .eps = sources.norm_eps},
        layer_(layer),
        in_(load_linear(reader, sources.in)),
        gates_(load_linear(reader, sources.gates)),
        conv_weight_(reader.vector(sources.conv)),
        a_log_(reader.vector(sources.a_log)),
        dt_bias_(reader.vector(sources.dt_bias)),
        norm_(reader.vector(sources.norm)),
        out_(load_linear(reader, sources.out)) {}

  const PackedWeight& first_weight() const override { return *in_.weight; }

  void place(const StepLimits& limits, Carver& carver) override {
    scratch_ = place_rows(heads_, limits, carver);
    out_.gather = place_gather(out_.gathers, out_.weight->n(), out_.weight->k(), limits, carver);
  }

  void mix(const BlockContext& context, const StepRows& step, KvCache& cache) override {
    Backend& backend = context.backend;
    const int64_t t = step.rows(), hv = heads_.value_heads;
    const TensorView in = scratch_.in.first_rows(t), qkv = scratch_.qkv.first_rows(t);
    const TensorView logits = scratch_.logits.first_rows(t);
    const TensorView gates = scratch_.gates.first_rows(t);
    run_linear(context, in_, step.input, in);
    run_linear(context, gates_, step.input, logits);
    backend.expect(*out_.weight);
    backend.causal_conv(in.columns(0, qkv.cols()), tap_matrix(conv_weight_, conv_), {}, conv_,
                        cache, layer_, qkv);
    backend.delta_prepare(qkv, logits.columns(0, hv), logits.columns(hv, hv), a_log_.view,
                          dt_bias_.view, heads_, gates);
    backend.delta_rule(qkv, gates, heads_, cache, layer_, step.mixed);
    backend.gated_norm(step.mixed, in.columns(qkv.cols(), step.mixed.cols()), norm_.view,
                       gated_norm_, step.mixed);
  }

  void add(const BlockContext& context, const StepRows& step, const Tail& tail) override {
    context.backend.expect(tail.weight);
    join(context, out_, step.mixed, step, tail);
  }

 private:
  DeltaSpec heads_;
  ConvSpec conv_;
  GatedNormSpec gated_norm_;
  int32_t layer_;
  Linear in_, gates_;
  DeviceVector conv_weight_, a_log_, dt_bias_, norm_;
  Linear out_;
  DeltaScratch scratch_;
};

}  // namespace

void DeltaSources::share(const RankPlace& place) {
  if (heads.key_heads % place.count != 0) {
    throw_error(ErrorCode::kUnsupported, "layers with a state have ", heads.key_heads,
                " heads of keys, which ", place.count,
                " devices can't share equally: set tensor_parallel_size to a divisor of ",
                heads.key_heads, ".");
  }
  const int64_t index = place.index, hv = heads.value_heads;
  const int64_t keys = heads.key_columns(), values = heads.value_columns();
  const int64_t k = keys / place.count, v = values / place.count, h = hv / place.count;
  std::vector<SourceRange> rows = {
      {index * k, k}, {keys + index * k, k}, {2 * keys + index * v, v}};
  conv.ranges = tap_ranges(rows, heads.qkv_columns(), kernel);
  rows.push_back({2 * keys + values + index * v, v});
  slice_rows(in.matrix, rows);
  const SourceRange own = {index * h, h};
  slice_rows(gates.matrix, {own, {hv + own.first, h}});
  a_log.ranges = dt_bias.ranges = {own};
  share_inputs(out, {index * v, v}, place);
  heads.key_heads /= place.count;
  heads.value_heads /= place.count;
}

StateRows DeltaSources::state() const {
  return {.channels = static_cast<int32_t>(heads.qkv_columns()),
          .window = kernel - 1,
          .heads = heads.value_heads,
          .key_dim = heads.key_dim,
          .value_dim = heads.value_dim};
}

void DeltaSources::measure(const StepLimits& limits, Carver& carver) const {
  place_rows(heads, limits, carver);
  place_gather(out.gathers, out.matrix.n(), out.matrix.k, limits, carver);
}

std::unique_ptr<Mixer> DeltaSources::load(WeightReader& reader, int32_t layer) const {
  return std::make_unique<DeltaBlock>(*this, reader, layer);
}

}  // namespace headrace
