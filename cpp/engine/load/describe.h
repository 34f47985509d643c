#pragma once

// What a ModelInfo says, subject by subject.

#include <string>

#include "backend/contract/backend.h"
#include "engine/load/memory_plan.h"
#include "engine/media/encoder_stage.h"
#include "engine/ranks/decoder_runner.h"
#include "headrace/engine.h"
#include "headrace/options.h"
#include "model/config/model_config.h"
#include "model/decoder/decoder.h"
#include "sched/scheduler.h"
#include "spec/guess_rule.h"

namespace headrace::internal {

ModelInfo describe_config(const std::string& name, const std::string& path,
                          const ModelConfig& config);
void describe_shapes(const ModelOptions& options, const DecoderOptions& decoder,
                     const CacheOptions& cache, const SchedulerConfig& scheduler, ModelInfo& info);
/// `replicas`: how many there are, of which this is one.
void describe_device(const RankedBackends& ranks, int32_t replicas, ModelInfo& info);
void describe_media(const EncoderStage::Parts& encoder, ModelInfo& info);
/// `request` is of all ranks.
void describe_memory(const DecoderRunner& runner, const MemoryRequest& request,
                     const MemoryPlan& plan, ModelInfo& info);
/// What guessing takes steps to cost. `draft` is null without a draft model.
StepCosts step_costs(const DeviceInfo& device, const ModelConfig& config, const ModelConfig* draft);

}  // namespace headrace::internal
