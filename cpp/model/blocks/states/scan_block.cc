#include "model/blocks/states/scan_block.h"

#include <array>

#include "base/check.h"
#include "model/blocks/carver.h"
#include "model/blocks/join.h"
#include "model/blocks/states/conv_block.h"
#include "model/sources/weight_slice.h"

namespace headrace {

namespace {

struct ScanScratch {
  TensorView in, xbc;
};

ScanScratch place_rows(const ScanSpec& heads, const StepLimits& limits, Carver& carver) {
  ScanScratch out;
  out.in = carver.matrix(limits.rows, heads.x_columns() + heads.xbc_columns() + heads.heads,
                         limits.activation);
  out.xbc = carver.matrix(limits.rows, heads.xbc_columns(), limits.activation);
  return out;
}

class ScanBlock final : public Mixer {
 public:
  ScanBlock(const ScanSources& sources, WeightReader& reader, int32_t layer)
      : heads_(sources.heads),
        factors_(sources.factors),
        conv_{.channels = static_cast<int32_t>(heads_.xbc_columns()),
              .kernel = sources.kernel,
              .silu = true},
        gated_norm_{.group = static_cast<int32_t>(heads_.x_columns() / heads_.groups),
                    .eps = sources.norm_eps,
                    .gate_first = sources.gate_first},
        layer_(layer),
        in_(load_linear(reader, sources.in)),
        conv_weight_(reader.vector(sources.conv)),
        conv_bias_(reader.vector(sources.conv_bias)),
        a_log_(reader.vector(sources.a_log)),
        dt_bias_(reader.vector(sources.dt_bias)),
        skip_(reader.vector(sources.skip)),
        norm_(reader.vector(sources.norm)),
        out_(load_linear(reader, sources.out)) {}

  const PackedWeight& first_weight() const override { return *in_.weight; }

  void place(const StepLimits& limits, Carver& carver) override {
    scratch_ = place_rows(heads_, limits, carver);
    out_.gather = place_gather(out_.gathers, out_.weight->n(), out_.weight->k(), limits, carver);
  }

  void mix(const BlockContext& context, const StepRows& step, KvCache& cache) override {
    Backend& backend = context.backend;
    const int64_t x = heads_.x_columns(), xbc = heads_.xbc_columns();
    const TensorView in = scratch_.in.first_rows(step.rows());
    const TensorView mixed = scratch_.xbc.first_rows(step.rows());
    run_linear(context, in_, step.input, in);
    scale_parts(backend, in);
    backend.expect(*out_.weight);
    backend.causal_conv(in.columns(x, xbc), tap_matrix(conv_weight_, conv_), conv_bias_.view, conv_,
                        cache, layer_, mixed);
    backend.ssm_scan(
        {mixed, in.columns(x + xbc, heads_.heads), a_log_.view, dt_bias_.view, skip_.view, heads_},
        cache, layer_, step.mixed);
    const TensorView z = in.columns(0, x);
    if (norm_.view.data != nullptr) {
      backend.gated_norm(step.mixed, z, norm_.view, gated_norm_, step.mixed);
      return;
    }
    backend.activate(Activation::kSilu, z);
    backend.multiply(step.mixed, z, step.mixed);
  }

  void add(const BlockContext& context, const StepRows& step, const Tail& tail) override {
    context.backend.expect(tail.weight);
    join(context, out_, step.mixed, step, tail);
  }

 private:
  /// Multiplies z‖x‖B‖C‖dt by their factors.
  void scale_parts(Backend& backend, const TensorView& in) const {
    const int64_t x = heads_.x_columns(), b = int64_t{heads_.groups} * heads_.state_dim;
    const std::array<int64_t, 5> columns = {x, x, b, b, heads_.heads};
    int64_t first = 0;
    for (size_t i = 0; i < columns.size(); first += columns[i++]) {
      if (factors_[i] == 1.0f) continue;
      const TensorView part = in.columns(first, columns[i]);
      backend.scale(part, factors_[i], part);
    }
  }

  ScanSpec heads_;
  std::array<float, 5> factors_;
  ConvSpec conv_;
  GatedNormSpec gated_norm_;
  int32_t layer_;
  Linear in_;
  DeviceVector conv_weight_, conv_bias_, a_log_, dt_bias_, skip_, norm_;
  Linear out_;
  ScanScratch scratch_;
};

}  // namespace

void ScanSources::share(const RankPlace& place) {
  if (heads.groups % place.count != 0) {
    throw_error(ErrorCode::kUnsupported, "layers with a state have ", heads.groups,
                " groups of heads, which ", place.count, " devices can't share equally: ",
                heads.groups == 1
                    ? str_cat("leave tensor_parallel_size out.")
                    : str_cat("set tensor_parallel_size to a divisor of ", heads.groups, "."));
  }
  const int64_t index = place.index, columns = heads.x_columns();
  const int64_t x = columns / place.count, h = heads.heads / place.count;
  const int64_t all = int64_t{heads.groups} * heads.state_dim, b = all / place.count;
  const SourceRange own_x = {index * x, x}, own_heads = {index * h, h};
  const std::vector<SourceRange> channels = {
      own_x, {columns + index * b, b}, {columns + all + index * b, b}};
  std::vector<SourceRange> rows = {own_x};
  for (const SourceRange& range : channels) rows.push_back({columns + range.first, range.count});
  rows.push_back({2 * columns + 2 * all + own_heads.first, h});
  slice_rows(in.matrix, rows);
  if (!in.bias.empty()) in.bias.ranges = rows;
  conv.ranges = tap_ranges(channels, heads.xbc_columns(), kernel);
  if (!conv_bias.empty()) conv_bias.ranges = channels;
  a_log.ranges = dt_bias.ranges = skip.ranges = {own_heads};
  if (!norm.empty()) norm.ranges = {own_x};
  share_inputs(out, own_x, place);
  heads.groups /= place.count;
  heads.heads /= place.count;
}

StateRows ScanSources::state() const {
  return {.channels = static_cast<int32_t>(heads.xbc_columns()),
          .window = kernel - 1,
          .heads = heads.heads,
          .key_dim = heads.state_dim,
          .value_dim = heads.head_dim};
}

void ScanSources::measure(const StepLimits& limits, Carver& carver) const {
  place_rows(heads, limits, carver);
  place_gather(out.gathers, out.matrix.n(), out.matrix.k, limits, carver);
}

std::unique_ptr<Mixer> ScanSources::load(WeightReader& reader, int32_t layer) const {
  return std::make_unique<ScanBlock>(*this, reader, layer);
}

}  // namespace headrace
