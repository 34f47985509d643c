#include "sched/state.h"

#include <algorithm>

namespace headrace {

void SchedulerState::preempt(Sequence& seq) {
  preempted.push_back(seq.id);
  try {
    waiting.insert(&seq);
  } catch (...) {
    preempted.pop_back();  // it goes on, and the next plan must not say otherwise
    throw;
  }
  stop_running(seq);
  drop_blocks(seq);
  ++preemptions;
}

void SchedulerState::stop_running(Sequence& seq) {
  const auto place = std::ranges::lower_bound(running, &seq, SeniorFirst());
  if (place != running.end() && *place == &seq) running.erase(place);
}

void SchedulerState::drop_blocks(Sequence& seq) {
  blocks.release(seq.blocks);
  seq.computed = seq.published = 0;
  seq.ready_until = seq.spec.ready_until;
}

void SchedulerState::remove(Sequence& seq) {
  drop_blocks(seq);
  waiting.erase(&seq);
  stop_running(seq);
  for (auto* plan : {&pending, &ahead}) {
    for (PlannedRows& planned : *plan) {
      if (planned.seq == &seq) planned.seq = nullptr;
    }
  }
  const SeqId id = seq.id;
  deadlines.erase({seq.spec.deadline, id});
  std::erase(preempted, id);
  sequences.erase(id);
}

}  // namespace headrace
