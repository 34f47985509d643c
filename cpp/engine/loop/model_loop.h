#pragma once

#include <array>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "engine/guess/speculator.h"
#include "engine/loop/model_control.h"
#include "engine/loop/step.h"
#include "engine/masks/mask_workers.h"
#include "engine/media/encoder_stage.h"
#include "engine/runner/step_runner.h"
#include "headrace/engine.h"
#include "sched/scheduler.h"

namespace headrace::internal {

/// Seconds of the clock that deadlines are in.
double monotonic_seconds();

/// The body of a model's thread: takes commands, plans, computes, commits, publishes. Where the
/// runner runs ahead, the next step begins before it waits for the results of the one under way.
///
/// A step that fails ends its own requests; kMaxFailedSteps in a row, or a broken scheduler, end
/// the loop as kFailed. Whatever happens, every request that reached the loop is finished when
/// run() returns.
class ModelLoop {
 public:
  static constexpr int kMaxFailedSteps = 3;

  struct Parts {
    std::string name;
    size_t replica = 0;  ///< which of the model's
    SchedulerConfig scheduler;
    std::unique_ptr<StepRunner> runner;
    std::unique_ptr<Speculator> speculator;  ///< null: nothing is guessed
    EncoderStage::Parts encoder;
    int32_t first_vision_token = 0;  ///< Step's
  };

  ModelLoop(Parts parts, std::shared_ptr<ModelControl> control, std::shared_ptr<Logger> logger);

  // --- while run() is not running -------------------------------------------------------------

  /// Takes the memory that steps need and computes one token: see warm_up.h.
  /// Uses blocks of the cache: REQUIRES that run() has never run.
  void warm_up();
  void reset_counters();
  void clear_prefix_cache();
  /// Gives the model's memory back. Only stats() and fits() may be called after it.
  void free_memory();

  /// The thread's body: returns when stopped, released or failed.
  void run() noexcept;

  // --- any thread -----------------------------------------------------------------------------

  /// REQUIRES: the loop has failed, so that it counts no more.
  void forget_counters();
  /// As of the last plan or commit; state and requests on their way are for the caller to add.
  ModelStats stats() const;
  /// Whether a request of that size fits the KV cache at all.
  bool fits(int64_t prompt_tokens, int64_t max_tokens) const {
    return scheduler_->fits(prompt_tokens, max_tokens);
  }
  /// Whether one step has room for a prompt.
  bool fits_step(int64_t prompt_tokens) const { return scheduler_->fits_step(prompt_tokens); }

 private:
  void serve();
  void apply(Command& command);
  void admit(PreparedRequest request);
  int32_t ahead_from(const LiveRequest& live) const;
  void cancel(const RequestState& request);
  /// A step between its plan and its commit.
  struct Round {
    Round(const SchedulerConfig& config, int32_t first_vision_token)
        : step(config.max_num_batched_tokens, config.max_num_seqs, first_vision_token) {}
    bool open = false;
    StepPlan plan;  ///< of one that has begun, the spans mean nothing
    Step step;
    std::exception_ptr failure;  ///< found when it was to begin
    double begun_at = 0;
  };

  Round& next_round() noexcept { return round_ == &rounds_[0] ? rounds_[1] : rounds_[0]; }
  void step();
  void open(Round& round, StepPlan plan);
  void encode(bool others_run);
  void begin_draws(Round& round);
  void postpone_late(Round& round);
  void resume_postponed();
  void note_time(const Round& round) noexcept;
  void wait_for_postponed();
  void note_plan(const StepPlan& plan);
  bool compute(Round& round);
  void drop_rounds() noexcept;
  void fill_drafts(const StepPlan& plan);
  void drop_hopeless(const Round& round);
  void note_drafts(const Round& round);
  void take_rows(const Round& round);
  void note_guessing(const std::string& failure);
  void take_tokens(Round& round, const SampledSeq& sampled, const CommittedSeq& committed,
                   LiveRequest& live, OutputDelta& delta);
  void go_on(const SampledSeq& sampled, SeqId id, LiveRequest& live,
             std::span<const int32_t> tokens);
  void collect(Round& round, const std::vector<CommittedSeq>& committed);
  void end(SeqId id, const Ending& ending);
  void forget(std::unordered_map<SeqId, LiveRequest>::iterator live);
  void end_all(const Ending& ending);
  void fail(const std::exception_ptr& why) noexcept;
  void publish();
  void update_stats();

  const std::string name_;
  const size_t replica_;
  const std::shared_ptr<ModelControl> control_;
  const std::shared_ptr<Logger> logger_;
  std::unique_ptr<StepRunner> runner_;  // changed under stats_mutex_, for stats()
  const SchedulerConfig config_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Speculator> speculator_;
  std::unique_ptr<EncoderStage> encoder_;  ///< null: the model takes no media
  const int32_t first_vision_token_;
  uint64_t encoded_at_start_ = 0, found_at_start_ = 0;

  // Owned by the loop thread while it runs.
  std::unique_ptr<MaskWorkers> mask_workers_;  // made for the first guided request
  std::array<Round, 2> rounds_;
  Round* round_ = &rounds_[0];  // whose turn it is: the other one is open only if it is ahead
  std::vector<Command> commands_;
  std::unordered_map<SeqId, LiveRequest> live_;
  std::unordered_map<const RequestState*, SeqId> ids_;
  std::vector<SeqId> postponed_;            // of live_, or ended since
  double last_end_ = 0, step_seconds_ = 0;  // of steps in parts
  std::vector<LiveRequest*> planned_;
  std::vector<Speculator::Planned> guessing_;
  std::vector<Speculator::Computed> computed_;
  std::vector<std::pair<std::shared_ptr<RequestState>, OutputDelta>> outbox_;
  size_t published_ = 0;  // of outbox_
  int failed_steps_ = 0;
  ModelStats counters_;
  SchedulerStats at_start_;

  mutable Mutex stats_mutex_;
  ModelStats stats_ HEADRACE_GUARDED_BY(stats_mutex_);
};

}  // namespace headrace::internal
