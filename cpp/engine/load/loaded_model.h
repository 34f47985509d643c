#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backend/contract/backend.h"
#include "base/log.h"
#include "engine/guess/speculator.h"
#include "engine/loop/step_runner.h"
#include "engine/lora_table.h"
#include "engine/media/encoder_stage.h"
#include "headrace/engine.h"
#include "headrace/options.h"
#include "model/config/model_config.h"
#include "sched/scheduler.h"

namespace headrace::internal {

/// A model in memory, not yet running.
struct LoadedModel {
  ModelInfo info;
  SchedulerConfig scheduler;
  int32_t dynamic_rope_max = 0;  ///< RopeSpec::dynamic_original_max
  bool has_head = true;          ///< ModelConfig's
  std::unique_ptr<StepRunner> runner;
  std::unique_ptr<Speculator> speculator;  ///< null: nothing is guessed
  EncoderStage::Parts encoder;             ///< what it takes of images and clips
  int32_t first_vision_token = 0;          ///< Step's
  /// Reads an adapter's folder; used by any thread, also beside the runner.
  LoraLoader load_lora;
};

/// Which of the replicas that ModelOptions::data_parallel_size asks for.
struct ReplicaPlace {
  int32_t index = 0;
  /// Name of replica 0's device, which says where device "auto" is; "" for replica 0.
  std::string first_device{};
};

/// Loads one replica.
using ModelLoader = std::function<LoadedModel(const std::string& name, const ModelOptions& options,
                                              const ReplicaPlace& replica, Logger& logger)>;

/// Throws Error(kInvalidArgument) naming the first option out of range, its value and its range.
void validate_model_options(const ModelOptions& options);

/// See device.h.
using DeviceOpener = std::function<std::shared_ptr<Backend>(
    const ModelOptions& options, bool packed, const BackendNeeds& needs, Logger& logger)>;

/// Reads the folder, plans the memory, packs the weights and reserves the KV cache on the backend
/// that the options name for this replica, or on the one that `open` gives.
/// Where device "auto" is one GPU that then refuses what the model needs (Error(kUnsupported)), it
/// is loaded on the CPU instead, with a warning.
LoadedModel load_model(const std::string& name, const ModelOptions& options,
                       const ReplicaPlace& replica, Logger& logger);
LoadedModel load_model_on(const DeviceOpener& open, const std::string& name,
                          const ModelOptions& options, const ReplicaPlace& replica, Logger& logger);

}  // namespace headrace::internal
