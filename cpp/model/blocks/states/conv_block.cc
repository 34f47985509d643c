#include "model/blocks/states/conv_block.h"

#include <utility>

#include "model/blocks/carver.h"
#include "model/blocks/join.h"
#include "model/sources/weight_slice.h"

namespace headrace {

namespace {

TensorView place_in(const ConvSpec& conv, const StepLimits& limits, Carver& carver) {
  return carver.matrix(limits.rows, 3 * int64_t{conv.channels}, limits.activation);
}

class ConvBlock final : public Mixer {
 public:
  ConvBlock(const ConvSources& sources, WeightReader& reader, int32_t layer)
      : conv_(sources.conv),
        layer_(layer),
        in_(load_linear(reader, sources.in)),
        weight_(reader.vector(sources.weight)),
        bias_(reader.vector(sources.conv_bias)),
        out_(load_linear(reader, sources.out)) {}

  const PackedWeight& first_weight() const override { return *in_.weight; }

  void place(const StepLimits& limits, Carver& carver) override {
    in_rows_ = place_in(conv_, limits, carver);
    out_.gather = place_gather(out_.gathers, out_.weight->n(), out_.weight->k(), limits, carver);
  }

  void mix(const BlockContext& context, const StepRows& step, KvCache& cache) override {
    Backend& backend = context.backend;
    const int64_t n = conv_.channels;
    const TensorView rows = in_rows_.first_rows(step.rows());
    run_linear(context, in_, step.input, rows);
    backend.expect(*out_.weight);
    const TensorView opened = rows.columns(0, n);
    backend.multiply(opened, rows.columns(2 * n, n), opened);
    backend.causal_conv(opened, tap_matrix(weight_, conv_), bias_.view, conv_, cache, layer_,
                        step.mixed);
    backend.multiply(step.mixed, rows.columns(n, n), step.mixed);
  }

  void add(const BlockContext& context, const StepRows& step, const Tail& tail) override {
    context.backend.expect(tail.weight);
    join(context, out_, step.mixed, step, tail);
  }

 private:
  ConvSpec conv_;
  int32_t layer_;
  Linear in_;
  DeviceVector weight_, bias_;
  Linear out_;
  TensorView in_rows_;  // [T, 3 C]
};

}  // namespace

VectorSource list_taps(std::string name, const std::string& tensor, int64_t channels,
                       int64_t kernel) {
  VectorSource out{.name = std::move(name), .is_float = true};
  for (int64_t tap = 0; tap < kernel; ++tap) {
    out.parts.push_back({.name = tensor,
                         .n = channels,
                         .shape = {channels, 1, kernel},
                         .offset = tap,
                         .step = kernel});
  }
  return out;
}

std::vector<SourceRange> tap_ranges(const std::vector<SourceRange>& channels, int64_t num_channels,
                                    int64_t kernel) {
  std::vector<SourceRange> out;
  for (int64_t tap = 0; tap < kernel; ++tap) {
    for (const SourceRange& range : channels) {
      out.push_back({tap * num_channels + range.first, range.count});
    }
  }
  return out;
}

TensorView tap_matrix(const DeviceVector& weight, const ConvSpec& spec) {
  return TensorView(weight.view.data, weight.view.dtype, {spec.kernel, spec.channels});
}

void ConvSources::share(const RankPlace& place) {
  const int64_t n = conv.channels;
  const SourceRange own = input_range(out.matrix, place, "a hidden size");
  const std::vector<SourceRange> rows = {
      own, {n + own.first, own.count}, {2 * n + own.first, own.count}};
  slice_rows(in.matrix, rows);
  if (!in.bias.empty()) in.bias.ranges = rows;
  weight.ranges = tap_ranges({own}, n, conv.kernel);
  if (!conv_bias.empty()) conv_bias.ranges = {own};
  share_inputs(out, own, place);
  conv.channels = static_cast<int32_t>(own.count);
}

void ConvSources::measure(const StepLimits& limits, Carver& carver) const {
  place_in(conv, limits, carver);
  place_gather(out.gathers, out.matrix.n(), out.matrix.k, limits, carver);
}

std::unique_ptr<Mixer> ConvSources::load(WeightReader& reader, int32_t layer) const {
  return std::make_unique<ConvBlock>(*this, reader, layer);
}

}  // namespace headrace
