// What the loop does for steps that begin before the results of the ones before them are there.

#include <algorithm>
#include <chrono>

#include "engine/loop/model_loop.h"

namespace headrace::internal {

/// From which position on the ops of a step need no more of it than the id of its last token.
int32_t ModelLoop::ahead_from(const LiveRequest& live) const {
  const int32_t logprobs =
      std::max(live.sampler->num_logprobs(), live.sampler->num_prompt_logprobs());
  // A row of a prompt that is scored is drawn from.
  const bool fits = live.scored_prompt.empty() ||
                    static_cast<size_t>(config_.max_num_batched_tokens) <= kMostDrawn;
  // Its last row may have to be taken back, which a state can't be.
  const bool may_be_postponed = live.guide != nullptr && config_.num_state_slots > 0;
  if (!runner_->runs_ahead() || speculator_ || live.pooler || first_vision_token_ > 0 || !fits ||
      may_be_postponed || logprobs > runner_->most_logprobs_ahead()) {
    return kNeverAhead;
  }
  return live.media ? live.media->end() : 0;
}

/// Those that begin() has left, behind the commit of the step before.
void ModelLoop::begin_draws(Round& round) {
  if (!round.step.draws_are_due()) return;
  try {
    postpone_late(round);
    round.step.begin_draws(*runner_, mask_workers_.get());
  } catch (...) {
    round.failure = std::current_exception();
  }
}

/// Masks that aren't there when most of the device's time for the step is over: their requests lose
/// their rows of this step, so that others go on, and get them again when the masks are there. With
/// no others there is more patience, for to compute a row again takes a step.
void ModelLoop::postpone_late(Round& round) {
  struct Late {
    SeqId id;
    size_t sampled;
    Guide* guide;
  };
  std::vector<Late> late;
  size_t sampled = 0;
  for (const PlannedSeq& seq : round.plan.seqs) {
    if (!seq.samples) continue;
    const auto found = live_.find(seq.id);
    const bool is_late =
        found != live_.end() && found->second.guide != nullptr && !found->second.guide->ready();
    if (is_late) late.push_back({seq.id, sampled, found->second.guide.get()});
    ++sampled;
  }
  if (late.empty()) return;
  constexpr double kShare = 0.75, kLeast = 1e-3, kLeastAlone = 50e-3;
  const bool has_others = late.size() + postponed_.size() < live_.size();
  const double start = monotonic_seconds();
  const double end = start + std::max(kShare * step_seconds_, has_others ? kLeast : kLeastAlone);
  for (const Late& each : late) {
    const std::chrono::duration<double> left(std::max(0.0, end - monotonic_seconds()));
    if (mask_workers_->wait_for(*each.guide,
                                std::chrono::duration_cast<std::chrono::nanoseconds>(left))) {
      continue;
    }
    postponed_.push_back(each.id);
    scheduler_->postpone(each.id);
    round.step.postpone(each.sampled);
  }
  counters_.mask_wait_seconds += monotonic_seconds() - start;
}

/// Of the step that has just been collected: what the device took, if it never waited.
void ModelLoop::note_time(const Round& round) noexcept {
  const double now = monotonic_seconds();
  step_seconds_ = now - std::max(round.begun_at, last_end_);
  last_end_ = now;
}

/// Those whose masks are there get rows again.
void ModelLoop::resume_postponed() {
  if (postponed_.empty()) return;
  mask_workers_->interrupt_late();
  std::erase_if(postponed_, [this](SeqId id) {
    const auto found = live_.find(id);
    if (found == live_.end()) return true;
    if (!found->second.guide->ready()) return false;
    scheduler_->resume(id);
    return true;
  });
}

/// There is nothing else to do, but for commands that arrive.
void ModelLoop::wait_for_postponed() {
  constexpr std::chrono::milliseconds kLookEvery{2};
  if (postponed_.empty()) return;
  const auto found = live_.find(postponed_.front());
  if (found != live_.end()) mask_workers_->wait_for(*found->second.guide, kLookEvery);
}

}  // namespace headrace::internal
