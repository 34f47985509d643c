#pragma once

// Drives a scheduler with the fake model and checks, at every step, what README.md promises.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "cpp/sched/fake_model.h"
#include "sched/scheduler.h"

namespace headrace::fake {

/// Rows of an item.

/// Behind the fewest rows from `position` on that a step can have.
int32_t least_end(const SeqSpec& spec, int32_t position);

class Scenario {
 public:
  Scenario(const SchedulerConfig& config, uint64_t seed);

  /// Requests are added at random times; some are cancelled, expire or lose their step.
  struct Options {
    int num_requests = 20;
    uint64_t arrivals_per_step = 4;  ///< less than this
    int32_t max_prompt = 30;
    int32_t max_output = 20;
    bool cancellations = true;
    bool deadlines = true;
    bool abandoned_steps = true;
    bool priorities = true;
    bool drafts = false;       ///< sequences wish for guesses, some of which are right
    bool media = false;        ///< some prompts have items
    bool whole_items = false;  ///< whose rows see each other, where a step has room for them
    int32_t longest_item = 5;
    bool rests = false;      ///< rows of some prompts are not ready at first
    bool postponed = false;  ///< some tokens can't be had in time
    bool ahead = false;      ///< plans are made before the step before is committed, where possible
    /// arm(n) lets the n-th allocation from then on fail; arm(-1) none. Empty: none ever.
    std::function<void(int64_t)> arm;
  };
  /// Runs until everything has ended. Reports failures through GoogleTest.
  void run(const Options& options);

  uint64_t interrupted() const { return interrupted_; }
  uint64_t lost_caches() const { return lost_caches_; }  ///< by abandoned steps with copies
  uint64_t guessed() const { return guessed_; }          ///< guesses that were right
  uint64_t ahead() const { return ahead_; }              ///< plans made ahead
  uint64_t given_up() const { return given_up_; }
  uint64_t postponed() const { return postponed_; }
  uint64_t whole_items() const {
    return whole_items_;
  }  ///< rows that their sight has kept together
  uint64_t rests() const { return rests_; }  ///< plans without rows of the most senior
  uint64_t tokens_generated() const { return tokens_generated_; }
  uint64_t continued() const { return continued_; }    ///< prefixes with a snapshot
  uint64_t saved() const { return saved_; }            ///< states, without those of drafts
  uint64_t given_back() const { return given_back_; }  ///< entries of tables that plans have shown
  const SchedulerStats& last_stats() const { return stats_; }

 private:
  struct Job {
    SeqSpec spec;
    Finished alone;               ///< what it must give
    std::vector<int32_t> tokens;  ///< prompt, then what it has given
    bool running = false;         ///< holds blocks, as far as the plans tell
    bool scheduled = false;       ///< was in a plan before
    int32_t computed = 0;
    int32_t in_flight = 0;         ///< rows that are planned
    int32_t to_come = 0;           ///< tokens that they will give
    int32_t num_columns = 0;       ///< taken, as far as the plans tell
    int32_t wished = 0;            ///< drafts
    int32_t ready = kAlwaysReady;  ///< rows before it are
    bool postponed = false;
    int32_t num_output() const { return static_cast<int32_t>(tokens.size() - spec.prompt.size()); }
    int32_t remaining() const {
      if (spec.max_tokens > 0 && num_output() + to_come == spec.max_tokens) return 0;
      return static_cast<int32_t>(tokens.size()) + to_come - computed - in_flight;
    }
  };

  /// A plan and copies of what its spans showed.
  struct Flight {
    explicit Flight(const StepPlan& plan_in);
    void point();  ///< the plan's spans to the copies
    StepPlan plan;
    std::vector<std::vector<int32_t>> tokens;
    std::vector<std::vector<Table>> tables;
    std::vector<std::vector<StateSave>> saves;
    std::set<SeqId> postponed;
  };

  uint64_t below(uint64_t n) { return random_() % n; }
  bool once_in(uint64_t n) { return below(n) == 0; }
  SeqSpec random_spec(const Options& options);
  MediaItems random_media(int32_t prompt_len, int32_t longest);
  RopeLen rope_len() const;
  void add_request(const Options& options);
  void cancel_random();
  void step(const Options& options);
  void plan_next(const Options& options);
  void plan_ahead(const Options& options);
  void postpone();
  void resume();
  void disturb(const Options& options);
  std::vector<std::vector<int32_t>> compute();
  void note_planned(const StepPlan& plan);
  /// Whether the plans tell all there is to know.
  bool is_exact(const Options& options) const {
    return !options.arm && !options.rests && given_up_ == 0;
  }
  template <class Call>
  auto with_failing_allocations(const Options& options, const Call& call);
  void check_expired(const StepPlan& plan);
  int32_t lacking_blocks() const;
  void check_interrupted(const StepPlan& plan, int32_t lacking, const Options& options);
  void check_preempted(const StepPlan& plan, const Options& options);
  void check_rows(const StepPlan& plan);
  void check_sequence(const PlannedSeq& seq);
  void check_tokens(const PlannedSeq& seq);
  void wish_drafts(const Options& options);
  void make_ready();
  bool is_held_up(SeqId id) const;
  void check_drafts(const PlannedSeq& seq);
  std::vector<std::vector<int32_t>> sample(const StepPlan& plan,
                                           const std::vector<uint64_t>& values);
  void check_order(const StepPlan& plan);
  void check_turns(const StepPlan& plan);
  void check_blocks(const StepPlan& plan);
  void check_given_back(const PlannedSeq& seq);
  void check_slots(const StepPlan& plan);
  void check_states(const StepPlan& plan);
  void check_slot_counts();
  void check_slots_at_rest();
  int32_t num_groups() const { return static_cast<int32_t>(config_.windows.size()); }
  void commit(const std::vector<std::vector<int32_t>>& sampled, const Options& options);
  void check_committed(const CommittedSeq& result, const std::vector<int32_t>& sampled);
  void abandon();
  void check_stats();
  const Job* most_senior() const;

  SchedulerConfig config_;
  std::mt19937_64 random_;
  Scheduler scheduler_;
  KvStore kv_;
  bool dynamic_rope_;
  std::map<SeqId, Job> jobs_;  ///< that have not ended
  std::map<SeqId, SeqSpec> specs_;
  std::deque<Flight> flights_;       ///< planned and not committed
  std::vector<SeqId> samplers_;      ///< of the step that was computed last,
  std::vector<int32_t> last_drawn_;  ///< and what they drew
  std::set<SeqId> sent_back_;        ///< by an abandoned step, and not yet said by a plan
  SchedulerStats stats_;
  bool ran_out_of_memory_ = false;
  int to_add_ = 0;
  double now_ = 0;
  uint64_t tokens_generated_ = 0;
  uint64_t given_back_ = 0, continued_ = 0, saved_ = 0;
  uint64_t interrupted_ = 0;
  uint64_t guessed_ = 0;
  uint64_t lost_caches_ = 0;
  uint64_t ahead_ = 0, given_up_ = 0, rests_ = 0, postponed_ = 0, whole_items_ = 0;
};

}  // namespace headrace::fake
