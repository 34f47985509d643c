#include "model/vision/vit_weights.h"

#include <algorithm>
#include <utility>

namespace headrace {

namespace {

/// Reads sources one after the other, and counts their bytes.
class Reader {
 public:
  explicit Reader(WeightReader& reader) : reader_(reader) {}

  Linear linear(const LinearSource& source) {
    Linear out = load_linear(reader_, source);
    if (out.weight) bytes_ += out.weight->bytes();
    bytes_ += out.bias.view.data == nullptr ? 0 : out.bias.bytes();
    return out;
  }

  DeviceNorm norm(const NormSource& source) { return {vector(source.weight), vector(source.bias)}; }

  VitJoin join(const JoinSources& source) {
    Linear up = linear(source.up);
    Linear down = linear(source.down);
    return {std::move(up), std::move(down), norm(source.norm)};
  }

  DeviceVector vector(const VectorSource& source) {
    DeviceVector out = reader_.vector(source);
    if (!source.empty()) bytes_ += out.bytes();
    return out;
  }

  size_t bytes() const noexcept { return bytes_; }

 private:
  WeightReader& reader_;
  size_t bytes_ = 0;
};

}  // namespace

VitWeights load_vit(const VisionSources& sources, WeightReader& weights) {
  Reader reader(weights);
  VitWeights out{.patches = reader.linear(sources.patches),
                 .positions = reader.vector(sources.positions),
                 .blocks = {},
                 .last_norm = {},
                 .mergers = {},
                 .resampler = {}};
  for (const VisionBlockSources& block : sources.blocks) {
    out.blocks.push_back({.norm_1 = reader.norm(block.norm_1),
                          .norm_2 = reader.norm(block.norm_2),
                          .q = reader.linear(block.q),
                          .kv = reader.linear(block.kv),
                          .proj = reader.linear(block.proj),
                          .up = reader.linear(block.up),
                          .down = reader.linear(block.down)});
  }
  out.last_norm = reader.norm(sources.last_norm);
  for (const MergerSources& merger : sources.mergers) {
    out.mergers.push_back({.norm = reader.norm(merger.norm),
                           .joins_first = merger.joins_first,
                           .up = reader.linear(merger.up),
                           .down = reader.linear(merger.down),
                           .averages = merger.averages});
  }
  if (sources.resampler) {
    out.resampler.emplace(VitResampler{.square = reader.join(sources.resampler->square),
                                       .grids = reader.join(sources.resampler->grids),
                                       .out = reader.linear(sources.resampler->out),
                                       .norm = reader.norm(sources.resampler->norm)});
  }
  out.bytes = reader.bytes();
  return out;
}

void take_positions(Backend& backend, VitWeights& weights) {
  const TensorView view = weights.positions.view;
  if (view.data == nullptr) return;
  const auto count = static_cast<size_t>(view.shape.elements());
  weights.position_copy.resize(count);
  if (view.dtype == DType::kF32) {
    backend.read_back(view.data, weights.position_copy.data(), count * sizeof(float));
  } else {
    HEADRACE_CHECK(view.dtype == DType::kBF16 || view.dtype == DType::kF16, dtype_name(view.dtype));
    std::vector<uint16_t> halves(count);
    backend.read_back(view.data, halves.data(), count * sizeof(uint16_t));
    std::ranges::transform(halves, weights.position_copy.begin(),
                           view.dtype == DType::kBF16 ? bf16_to_f32 : f16_to_f32);
  }
  weights.bytes -= weights.positions.bytes();
  weights.positions = {};
}

}  // namespace headrace
