#include "engine/load/weights.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/check.h"
#include "engine/cache/weight_cache.h"
#include "engine/devices/device_names.h"
#include "headrace/pack.h"
#include "model/checkpoint/checkpoint.h"
#include "model/load/list_sources.h"
#include "model/load/load_config.h"
#include "model/sources/model_sources.h"
#include "model/vision/make_tower.h"
#include "model/weights/weight_loader.h"

namespace headrace::internal {

namespace {

ModelSources packed_sources(const PackedFile& packed, const ModelConfig& config,
                            const RankPlace& rank) {
  ModelSources sources = list_sources(config, likely_naming(config), packed.header().quantization);
  const StoredMethod stored = config.stored_quantization.method;
  const bool rounded = is_numbers(stored) && packed.header().quantization.bits != 0;
  if (stored != StoredMethod::kNone && !rounded) packed.set_formats(sources, rank);
  share_sources(rank, sources);
  return sources;
}

std::string in_words(const Quantization& quantization) {
  if (quantization.bits == 0) return "weights that aren't quantized";
  return str_cat(quantization_name(quantization), " weights in groups of ",
                 quantization.group_size);
}

}  // namespace

DType parse_dtype(const std::string& name, DType automatic) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (name == dtype_name(dtype)) return dtype;
  }
  return automatic;
}

DType parse_kv_dtype(const std::string& name, DType automatic) {
  for (DType dtype : {DType::kI8, DType::kF8E4M3, DType::kU4}) {
    if (name == kv_dtype_name(dtype)) return dtype;
  }
  return parse_dtype(name, automatic);
}

std::string kv_dtype_name(DType dtype) {
  return dtype == DType::kF8E4M3 ? "fp8" : dtype_name(dtype);
}

std::string mtp_folder(const ModelOptions& options) {
  return options.speculative.method == "mtp" ? options.speculative.model : std::string();
}

ModelConfig read_model_config(const ModelOptions& options) {
  ModelConfig out = load_model_config(options.path);
  if (options.speculative.method != "mtp") return out;
  if (!has_mtp(out)) {
    throw_error(ErrorCode::kUnsupported, "speculative method mtp needs a model with an MTP block, ",
                "which ", out.model_type,
                " models don't have in this build: use ngram or draft_model.");
  }
  out.uses_mtp = true;
  return out;
}

std::unique_ptr<PackedFile> open_packed(const ModelOptions& options) {
  if (!options.packed_weights.empty() && options.packed_weights != kCachedWeights) {
    return std::make_unique<PackedFile>(options.packed_weights);
  }
  const std::filesystem::path file = std::filesystem::path(options.path) / kPackedFileName;
  std::error_code ignored;
  if (options.dummy_weights || !std::filesystem::exists(file, ignored) ||
      !checkpoint_files(options.path).empty()) {
    return nullptr;
  }
  return std::make_unique<PackedFile>(file);
}

void find_head(const std::string& folder, const PackedFile* packed, ModelConfig& config) {
  if (!config.has_head) return;  // an encoder's
  const bool by_tensor = head_if_stored(config);
  const bool tied = config.tie_word_embeddings && !by_tensor;
  bool found = false;
  if (packed != nullptr) {
    found = std::ranges::any_of(packed->header().tensors, [](const PackedTensor& tensor) {
      return tensor.name == "head" || tensor.name == "head.rank.0";
    });
  } else {
    const Checkpoint checkpoint(folder);
    found = tied ? holds_other_head(config, checkpoint) : holds_head(config, checkpoint);
  }
  if (tied) {
    config.tie_word_embeddings = !found;
    return;
  }
  config.has_head = found || by_tensor;
  config.tie_word_embeddings = !found;
}

DType storage_dtype(const ModelOptions& options, const ModelConfig& config,
                    const PackedFile* packed) {
  if (packed != nullptr) {
    const DType held = packed->header().storage;
    if (parse_dtype(options.dtype, held) == held) return held;
    throw_error(ErrorCode::kUnsupported, packed->path(), " holds ", dtype_name(held),
                " weights, but dtype is ", options.dtype, ": set dtype to auto or ",
                dtype_name(held), ", or pack the model again.");
  }
  const bool usable =
      config.checkpoint_dtype == DType::kBF16 || config.checkpoint_dtype == DType::kF16;
  return parse_dtype(options.dtype, usable ? config.checkpoint_dtype : DType::kF32);
}

Quantization quantization_of(const ModelOptions& options, const ModelConfig& config,
                             const PackedFile* packed) {
  const Quantization asked =
      parse_quantization(options.quantization, options.quantization_group_size);
  const StoredQuantization& stored = config.stored_quantization;
  if (stored.method != StoredMethod::kNone && !is_numbers(stored.method) && asked.bits != 0 &&
      (asked.bits != stored.bits || asked.float8 != Float8::kNone ||
       options.quantization_group_size != 0)) {
    throw_error(ErrorCode::kUnsupported, "quantization is ", options.quantization,
                options.quantization_group_size == 0 ? "" : " with a group size",
                ", but the checkpoint comes quantized (", stored_method_name(stored.method), ", ",
                stored.bits, " bits), and is loaded as it is: leave quantization out, or say wint",
                stored.bits, " for an int8 head.");
  }
  if (packed == nullptr) return asked;
  const Quantization held = packed->header().quantization;
  if (options.quantization.empty() || asked == held) return held;
  throw_error(ErrorCode::kUnsupported, packed->path(), " holds ", in_words(held),
              ", but the options ask for ", in_words(asked),
              ": leave quantization out, or pack the model again.");
}

void check_expert_parallel(const ModelOptions& options, const ModelConfig& config) {
  if (!options.enable_expert_parallel || config.moe.router.num_experts > 0) return;
  throw_error(ErrorCode::kUnsupported, "enable_expert_parallel is set, but ", options.path,
              " has no experts: leave it out.");
}

void check_packed_ranks(const PackedFile& packed, const ModelOptions& options) {
  const PackedHeader& header = packed.header();
  const auto in_numbers = [](int32_t count, bool whole_experts) {
    return str_cat(count, count == 1 ? " device" : " devices",
                   whole_experts ? " with whole experts" : "");
  };
  const int32_t count = num_ranks(options);
  const bool whole_experts = count > 1 && options.enable_expert_parallel;
  if (header.num_ranks == count && header.whole_experts == whole_experts) return;
  throw_error(
      ErrorCode::kUnsupported, packed.path(), " is packed for ",
      in_numbers(header.num_ranks, header.whole_experts), ", but the model is to run on ",
      in_numbers(count, whole_experts),
      ": pack it with the tensor_parallel_size and enable_expert_parallel that it is loaded "
      "with, or load the folder's own weights.");
}

void check_packed_file(const PackedFile& packed, const ModelOptions& options,
                       const ModelConfig& config, const Backend& backend, LoadWatch& watch) {
  if (!mtp_folder(options).empty()) {
    throw_error(ErrorCode::kInvalidArgument, "speculative.model is ", options.speculative.model,
                ", but weights come from the packed file ", packed.path(),
                ", which holds the MTP block, too: leave speculative.model out.");
  }
  check_packed_ranks(packed, options);
  const int32_t threads = backend.device_info().num_threads;
  watch.expect(LoadStage::kChecking, packed.bytes());
  watch.enter(LoadStage::kChecking);
  packed.check_identity(options.path, threads, [&watch](size_t) { watch.check(); });
  const PackedHeader& header = packed.header();
  std::vector<ModelSources> ranks;
  for (int32_t rank = 0; rank < header.num_ranks; ++rank) {
    ranks.push_back(packed_sources(packed, config, {rank, header.num_ranks, header.whole_experts}));
  }
  packed.check_layout(ranks, backend);
  packed.check_contents(threads, [&watch](size_t bytes) { watch.pass(bytes); });
}

namespace {

LoadedWeights read_weights(const WantedModel& model, const ModelSources& sources,
                           WeightReader& reader) {
  WatchedReader watched(reader, model.watch);
  model.watch.enter(LoadStage::kWeights);
  LoadedWeights out;
  out.decoder = std::make_unique<Decoder>(
      model.backend, share_config(model.shape.rank, model.config), sources, watched, model.shape);
  if (sources.vision) {
    out.tower = make_vision_tower(model.backend, model.config, *sources.vision, watched,
                                  model.shape.storage);
  }
  out.linears = list_adapted(sources);
  return out;
}

LoadedWeights decoder_from(const WantedModel& model, const PackedFile& packed) {
  const RankPlace& rank = model.shape.rank;
  PackedReader reader(model.backend, packed, model.options.packed_copy, rank);
  LoadedWeights out = read_weights(model, packed_sources(packed, model.config, rank), reader);
  out.packed_file = packed.path();
  return out;
}

LoadedWeights load_cached(const WantedModel& model) {
  const WeightCache cache(
      {model.name, model.options, model.config, model.shape, model.backend, model.logger});
  const auto check = [&model](const PackedFile& packed) {
    check_packed_file(packed, model.options, model.config, model.backend, model.watch);
  };
  if (const auto packed = cache.find(check)) return decoder_from(model, *packed);
  const Checkpoint checkpoint(model.options.path);
  const ModelSources sources =
      checkpoint_sources(model.config, checkpoint, model.shape.quantization);
  WeightLoader loader(model.backend, &checkpoint, model.shape.storage, 0.0f,
                      &model.watch.checker());
  RecordingReader reader(loader);
  LoadedWeights out = read_weights(model, sources, reader);
  checkpoint.check_unchanged();
  out.writer = cache.writer(sources, reader);
  return out;
}

LoadedWeights load_folder(const WantedModel& model) {
  const Checkpoint checkpoint(model.options.path, mtp_folder(model.options),
                              mtp_tensors(model.config));
  ModelSources sources = checkpoint_sources(model.config, checkpoint, model.shape.quantization);
  share_sources(model.shape.rank, sources);
  WeightLoader loader(model.backend, &checkpoint, model.shape.storage, 0.0f,
                      &model.watch.checker());
  LoadedWeights out = read_weights(model, sources, loader);
  checkpoint.check_unchanged();
  return out;
}

LoadedWeights load_dummy(const WantedModel& model) {
  WeightLoader loader(model.backend, nullptr, model.shape.storage, model.shape.dummy_spread,
                      &model.watch.checker());
  ModelSources sources =
      list_sources(model.config, likely_naming(model.config), model.shape.quantization);
  share_sources(model.shape.rank, sources);
  return read_weights(model, sources, loader);
}

}  // namespace

LoadedWeights load_decoder(const WantedModel& model, const PackedFile* packed) {
  const ModelOptions& options = model.options;
  if (packed != nullptr) return decoder_from(model, *packed);
  if (options.packed_weights == kCachedWeights) {
    const bool from_two = !mtp_folder(options).empty(), shared = model.shape.rank.count > 1;
    if (model.backend.device_info().caches_packed && !from_two && !shared) {
      return load_cached(model);
    }
    model.logger.log(LogLevel::kInfo, "model '", model.name, "': ",
                     shared     ? "several devices share it"
                     : from_two ? "its MTP block comes from another folder"
                                : "this device keeps no packed weights",
                     ", so that their cache is not used");
  }
  return options.dummy_weights ? load_dummy(model) : load_folder(model);
}

}  // namespace headrace::internal
