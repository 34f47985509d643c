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
  drop_all(seq);
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

void SchedulerState::drop_all(Sequence& seq) {
  drop_blocks(seq);
  for (int32_t* slot : {&seq.source, &seq.live}) {
    const int32_t held = std::exchange(*slot, StateSlots::kNone);
    if (held != StateSlots::kNone) blocks.states().release(held);
  }
}

void SchedulerState::move_source(Sequence& seq, const PlannedRows& planned) {
  const int32_t next = planned.saves_last() ? planned.saves.back().slot : StateSlots::kNone;
  if (next != StateSlots::kNone) blocks.states().retain(next);
  const int32_t last = std::exchange(seq.source, next);
  if (last != StateSlots::kNone) blocks.states().release(last);
}

void SchedulerState::drop_saves(PlannedRows& planned) {
  for (const StateSave& save : planned.saves) blocks.states().release(save.slot);
  planned.saves.clear();
}

void SchedulerState::remove(Sequence& seq) {
  drop_all(seq);
  waiting.erase(&seq);
  stop_running(seq);
  for (auto* plan : {&pending, &ahead}) {
    for (PlannedRows& planned : *plan) {
      if (planned.seq != &seq) continue;
      planned.seq = nullptr;
      drop_saves(planned);
    }
  }
  const SeqId id = seq.id;
  deadlines.erase({seq.spec.deadline, id});
  std::erase(preempted, id);
  sequences.erase(id);
}

}  // namespace headrace
