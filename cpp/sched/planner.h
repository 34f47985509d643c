#pragma once

// Planner: makes one step's plan. README.md in this folder gives the rules it follows.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sched/state.h"

namespace headrace {

/// Used once. Every single change it makes (a block taken, a sequence admitted or preempted) keeps
/// the state whole, and rows are pending only once the plan is complete: if it throws, nothing is
/// lost and planning may be tried again.
class Planner {
 public:
  /// `ahead`: of the commit of the pending plan, see README.md.
  Planner(SchedulerState& state, bool ahead);

  /// Visits all sequences, senior first, and gives each what it may have. Ahead, nobody gets
  /// anything if somebody would have to wait for the pending plan.
  StepPlan make(double now);

 private:
  void visit_all();
  bool may_go_ahead() const;
  void expire(double now);
  void interrupt();
  Sequence& choose_victim() const;
  int32_t lacking_blocks() const;
  Sequence* next_to_admit() const;
  bool admit(Sequence& seq);
  bool prefix_is_coming(const Sequence& seq) const;
  bool is_filling(const Sequence& senior, const Sequence& seq, size_t index) const;
  bool make_room_for(const Sequence& seq);
  void schedule(Sequence& seq);
  void wait_for_room(Sequence& seq);
  int32_t cover(Sequence& seq, int32_t positions);
  bool may_take_block(const Sequence& seq) const;
  bool preempt_most_junior(size_t first);
  void grant_drafts();
  int32_t cover_drafts(Sequence& seq, int32_t count);
  void make_pending();
  /// Rows that prefill may take: the unvisited decodes keep theirs.
  int32_t prefill_rows() const noexcept { return rows_left_ - decodes_ahead_; }
  void count_ahead(const Sequence& seq, int32_t change) noexcept;
  bool interrupts() const noexcept { return state_.config.out_of_blocks != OutOfBlocks::kPreempt; }

  SchedulerState& state_;
  StepPlan plan_;
  const bool ahead_;
  bool gives_up_ = false;             ///< planning ahead
  std::vector<PlannedRows> planned_;  ///< of plan_.seqs
  size_t visited_ = 0;                ///< running[0 .. visited_) have got what they get
  bool admission_open_ = true;
  int32_t rows_left_;
  int32_t decodes_ahead_ = 0;     ///< running sequences, not yet visited, that need one row
  int32_t blocks_set_aside_ = 0;  ///< of these, those whose row needs one block more
  int32_t blocks_promised_ = 0;   ///< that visited sequences will soon want
};

}  // namespace headrace
