#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/media/encoder_cache.h"
#include "engine/media/media_limits.h"
#include "engine/media/request_media.h"
#include "engine/runner/step_runner.h"
#include "model/vision/vision_tower.h"
#include "sched/scheduler.h"

namespace headrace::internal {

/// Makes the rows of images and clips that the next steps need, between steps. A running request
/// whose next rows aren't there rests (Scheduler::set_ready); what is there for it is pinned in the
/// cache. The most senior request that lacks a unit has it encoded. The loop thread.
class EncoderStage {
 public:
  struct Parts {
    std::shared_ptr<VisionTower> tower;  ///< null: embeddings alone
    MediaLimits limits;
    int32_t max_tokens = 1;  ///< ModelOptions::max_encoder_tokens
    int32_t max_rows = 1;    ///< of a step
  };
  /// A request whose item could not be encoded.
  struct Failure {
    SeqId id;
    size_t item;
    std::exception_ptr why;
  };

  EncoderStage(Parts parts, StepRunner& runner);

  /// From now on it is looked after; `media` lives until remove() has returned.
  void add(SeqId id, int32_t priority, RequestMedia& media);
  void remove(SeqId id) noexcept;

  /// Before a plan: tells the scheduler how far each running request may go. REQUIRES: no plan is
  /// pending.
  void prepare(Scheduler& scheduler);
  /// Between steps: works on what is lacking; about max_tokens rows of it while others have rows in
  /// the steps, else a piece. REQUIRES: as prepare().
  std::optional<Failure> work(Scheduler& scheduler, bool others_run);

  uint64_t encoded_rows() const noexcept { return encoded_rows_; }
  uint64_t found_rows() const noexcept { return found_rows_; }
  /// That encoded units take, and the one being encoded.
  size_t bytes() const noexcept;

 private:
  /// A unit that a request needs.
  struct Wanted {
    SeqId id;
    RequestMedia* media;
    size_t item, unit;
    EncoderCache::Key key() const { return {media->items()[item].digest, unit}; }
    const MediaUnit& what() const { return media->items()[item].units[unit]; }
  };
  /// A unit that is being encoded.
  struct Work {
    Wanted wanted;
    MediaRows rows;
    size_t bytes;
    std::unique_ptr<TowerRun> run;
    int32_t pieces;
  };

  int32_t pin_ahead(SeqId id, RequestMedia& media, int32_t next);
  bool pin(const Wanted& wanted);
  bool hand_over() noexcept;
  bool begin();
  bool advance();
  void finish();
  void note(const Wanted& wanted, uint64_t& counter) noexcept;

  const Parts parts_;
  StepRunner& runner_;
  EncoderCache cache_;
  std::map<std::pair<int32_t, SeqId>, RequestMedia*> requests_;  ///< senior first
  std::optional<Wanted> wanted_;  ///< what the most senior request that lacks one lacks first
  size_t pinned_bytes_ = 0;
  size_t reserved_bytes_ = 0;  ///< for units that are not in the cache yet
  std::optional<Work> work_;
  uint64_t encoded_rows_ = 0, found_rows_ = 0;
};

}  // namespace headrace::internal
