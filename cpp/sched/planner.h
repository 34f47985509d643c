#pragma once

// Planner: makes one step's plan. README.md in this folder gives the rules it follows.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sched/state.h"

namespace headrace {

/// Makes one plan. Each change (a block taken, a sequence admitted or preempted) keeps the state
/// whole, and rows become pending only when the plan is complete. If it throws, nothing is lost,
/// and the caller may plan again.
class Planner {
 public:
  /// `ahead`: the plan is made before the commit of the pending plan, see README.md.
  Planner(SchedulerState& state, bool ahead);
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;
  ~Planner() { drop_plan(); }

  /// Visits all sequences, senior first, and gives each sequence its rows. When planning ahead, the
  /// plan is empty if a sequence would have to wait for the pending plan.
  StepPlan make(double now);

 private:
  void visit_all();
  void drop_plan();
  bool may_go_ahead() const;
  void expire(double now);
  void interrupt();
  Sequence& choose_victim() const;
  int32_t lacking_blocks() const;
  /// Of a column: one of each group.
  int32_t column_blocks() const noexcept {
    return static_cast<int32_t>(state_.blocks.groups().size());
  }
  Sequence* next_to_admit() const;
  bool admit(Sequence& seq);
  void take_slots(Sequence& seq);
  void count_prefix(Sequence& seq, int32_t restored);
  bool prefix_is_coming(const Sequence& seq) const;
  bool snapshot_is_coming(const Sequence& seq) const;
  bool will_save(const Sequence& senior, const Sequence& seq) const;
  bool goes_on(const Sequence& senior) const;
  bool is_filling(const Sequence& senior, const Sequence& seq, size_t index) const;
  bool make_room_for(const Sequence& seq);
  void schedule(Sequence& seq);
  void wait_for_room(Sequence& seq);
  int32_t cover(Sequence& seq, int32_t positions);
  bool may_take_column(const Sequence& seq) const;
  bool preempt_most_junior(size_t first);
  void grant_drafts();
  int32_t cover_drafts(Sequence& seq, int32_t count);
  void take_draft_slots(PlannedRows& planned);
  void save_snapshots(PlannedRows& planned);
  void show_states();
  void make_pending();
  /// Rows that a prefill may take; each unvisited decode keeps its row.
  int32_t prefill_rows() const noexcept { return rows_left_ - decodes_ahead_; }
  void count_ahead(const Sequence& seq, int32_t change) noexcept;
  bool interrupts() const noexcept { return state_.config.out_of_blocks != OutOfBlocks::kPreempt; }

  SchedulerState& state_;
  StepPlan plan_;
  const bool ahead_;
  bool gives_up_ = false;                  ///< planning ahead
  std::vector<PlannedRows> planned_;       ///< one for each of plan_.seqs
  const Sequence* last_victim_ = nullptr;  ///< of preemption, the most senior one
  size_t visited_ = 0;                     ///< running[0 .. visited_) have their rows
  bool admission_open_ = true;
  int32_t rows_left_;
  int32_t decodes_ahead_ = 0;     ///< running sequences, not yet visited, that need one row
  int32_t blocks_set_aside_ = 0;  ///< blocks that the rows of these decodes need
  int32_t blocks_promised_ = 0;   ///< blocks that visited sequences are about to use
};

}  // namespace headrace
