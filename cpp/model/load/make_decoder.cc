#include "model/load/make_decoder.h"

#include "base/check.h"
#include "base/checked_math.h"
#include "model/load/list_sources.h"
#include "model/weights/weight_loader.h"

namespace headrace {

std::unique_ptr<Decoder> make_decoder(Backend& backend, const ModelConfig& config,
                                      const Checkpoint* checkpoint, const DecoderOptions& options) {
  if (options.dummy_weights) checkpoint = nullptr;
  HEADRACE_CHECK(options.dummy_weights || checkpoint != nullptr);
  const Quantization quantization = on_device(options.quantization, backend.device_info());
  const ModelSources sources = checkpoint == nullptr
                                   ? list_sources(config, likely_naming(config), quantization)
                                   : checkpoint_sources(config, *checkpoint, quantization);
  WeightLoader loader(backend, checkpoint, options.storage, options.dummy_spread);
  auto decoder = std::make_unique<Decoder>(backend, config, sources, loader, options);
  if (checkpoint != nullptr) checkpoint->check_unchanged();
  return decoder;
}

size_t plan_scratch_bytes(const ModelConfig& config, const DecoderOptions& options,
                          DType activation) {
  ModelSources sources = list_sources(config, likely_naming(config));
  share_sources(options.rank, sources);
  return Decoder::plan_scratch_bytes(config, sources, options, activation);
}

size_t plan_weight_bytes(const ModelConfig& config, DType storage, const Quantization& quantization,
                         const RankPlace& rank) {
  ModelSources sources = list_sources(config, likely_naming(config), quantization);
  share_sources(rank, sources);
  int64_t bytes = 0, vectors = 0;
  for (const MatrixSource* source : sources.matrices()) {
    const QuantFormat& quant = source->quant;
    const auto element = static_cast<int64_t>(dtype_size(source->kept_as(storage)));
    // A group has a scale.
    const int64_t scale = rounds_rows(quant) ? 4 : quant.float4 ? 1 : 2;
    bytes += quant.bits == 0
                 ? source->numbers() * element
                 : source->experts * source->n() * ceil_div(source->k, int64_t{quant.group_size}) *
                       (quant.group_size * quant.bits / 8 + scale);
  }
  for (const VectorSource* source : sources.vectors()) vectors += source->n();
  return static_cast<size_t>(bytes) + static_cast<size_t>(vectors) * dtype_size(DType::kF32);
}

}  // namespace headrace
