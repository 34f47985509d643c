#pragma once

// What a model is loaded with: the shapes of its steps and of its cache; and its draft model.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/contract/backend.h"
#include "engine/load/weights.h"
#include "model/decoder/decoder.h"
#include "model/sources/cache_layout.h"

namespace headrace::internal {

struct Shapes {
  DecoderOptions decoder;
  CacheOptions cache;
  std::vector<int32_t> windows;   ///< KvGroups::windows
  bool has_states = false;        ///< some layer keeps a state
  int32_t snapshot_interval = 0;  ///< SchedulerConfig's; 0 without states
  bool whole_pictures = false;    ///< a picture's rows see each other (VisionConfig::both_ways)
};

/// The draft model of speculative decoding, about to be loaded.
struct Draft {
  ModelOptions options;
  ModelConfig config;
  std::unique_ptr<PackedFile> packed;
  Shapes shapes;
};

/// Of a picture whose rows see each other, beside a row of each other sequence.
int32_t most_item_rows(const ModelOptions& options, const DecoderOptions& decoder);

/// Rows of a request that an MTP block may leave unread: those of a step, and a text's that is read
/// for nothing.
int32_t most_unread(const ModelOptions& options);

Shapes choose_shapes(const ModelOptions& options, const ModelConfig& config, DType storage,
                     bool is_draft = false);

/// What a rank keeps: of key/value heads that there are fewer of than ranks, several keep the same.
CacheLayout rank_layout(const CacheOptions& options, const ModelConfig& config,
                        const RankPlace& rank);

/// What a step may hold, and what quantized weights meet, depends on the device.
void fit_to(const Backend& backend, const ModelOptions& options, const ModelConfig& config,
            DecoderOptions& decoder);

BackendNeeds needs_of(const ModelOptions& options, const ModelConfig& config, const Shapes& shapes);

/// Throws Error(kUnsupported): speculative decoding of a model that gives no text.
void check_speculative(const ModelOptions& options, const ModelConfig& config);

/// None if the options name none. Throws Error: one that doesn't fit the model, or the device.
std::optional<Draft> open_draft(const ModelOptions& options, const ModelConfig& target,
                                Backend& backend);

}  // namespace headrace::internal
