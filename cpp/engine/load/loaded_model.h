#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/log.h"
#include "engine/adapters/lora_table.h"
#include "engine/devices/device_names.h"
#include "engine/guess/speculator.h"
#include "engine/media/encoder_stage.h"
#include "engine/runner/step_runner.h"
#include "headrace/engine.h"
#include "headrace/options.h"
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

/// Loads one replica.
using ModelLoader = std::function<LoadedModel(const std::string& name, const ModelOptions& options,
                                              const ReplicaPlace& replica, Logger& logger)>;

}  // namespace headrace::internal
