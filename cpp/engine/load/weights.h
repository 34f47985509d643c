#pragma once

// Where a model's weights come from: its folder, a packed file, or nowhere.

#include <memory>
#include <string>

#include "backend/contract/backend.h"
#include "base/log.h"
#include "engine/load/load_watch.h"
#include "engine/ranks/loaded_weights.h"
#include "headrace/options.h"
#include "model/config/model_config.h"
#include "model/decoder/decoder.h"
#include "model/packed/packed_file.h"

namespace headrace::internal {

/// The dtype of that name, or `automatic`.
DType parse_dtype(const std::string& name, DType automatic);
/// The same for a KV cache, which may also be int8, fp8 or uint4.
DType parse_kv_dtype(const std::string& name, DType automatic);
/// What parse_kv_dtype() calls it.
std::string kv_dtype_name(DType dtype);

/// The config of the folder, with the MTP block that the options may ask for. Throws what
/// load_model_config() throws, and Error(kUnsupported) for a family without such blocks.
ModelConfig read_model_config(const ModelOptions& options);

/// The folder that the MTP block comes from; "": none, or the model's own.
std::string mtp_folder(const ModelOptions& options);

/// The packed file that these options load from; null if they load the folder's own weights.
/// Throws Error as PackedFile does.
std::unique_ptr<PackedFile> open_packed(const ModelOptions& options);

/// Learns from the weights whether the model has a head of its own: sets tie_word_embeddings, which
/// config.json may have otherwise than the weights, and has_head where it should have one. `packed`
/// may be null. Throws Error as Checkpoint and detect_naming() do.
void find_head(const std::string& folder, const PackedFile* packed, ModelConfig& config);

/// The dtype that weights are kept in. `packed` may be null. Throws Error(kUnsupported) if the
/// options ask for another one than the packed file's.
DType storage_dtype(const ModelOptions& options, const ModelConfig& config,
                    const PackedFile* packed);

/// How weights are quantized that the checkpoint doesn't hold so; likewise.
Quantization quantization_of(const ModelOptions& options, const ModelConfig& config,
                             const PackedFile* packed);

/// Throws Error(kUnsupported) if the options share experts out that the model hasn't.
void check_expert_parallel(const ModelOptions& options, const ModelConfig& config);

/// Throws Error(kUnsupported) unless `packed` is for as many devices as the options name.
void check_packed_ranks(const PackedFile& packed, const ModelOptions& options);

/// Throws Error unless `packed` is whole and fits folder, config, backend and number of devices.
void check_packed_file(const PackedFile& packed, const ModelOptions& options,
                       const ModelConfig& config, const Backend& backend, LoadWatch& watch);

/// A model about to be loaded. The references outlive what is made of it.
struct WantedModel {
  const std::string& name;
  const ModelOptions& options;
  const ModelConfig& config;
  const DecoderOptions& shape;
  Backend& backend;
  Logger& logger;
  LoadWatch& watch;
};

/// A decoder with its weights (of WantedModel::shape's rank, its part of them), from `packed` if
/// that isn't null. REQUIRES: check_packed_file() was content with it.
LoadedWeights load_decoder(const WantedModel& model, const PackedFile* packed);

}  // namespace headrace::internal
