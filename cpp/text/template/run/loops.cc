#include "text/template/run/evaluator.h"
#include "text/template/run/members.h"

namespace headrace::text::jinja {
namespace {

/// What loop(...) of a recursive loop renders.
struct Recursion {
  const ForNode* node;
  Activation* outer;
};

}  // namespace

Evaluator::Flow Evaluator::for_(const ForNode* node, Activation* frame) {
  const Value over = evaluate(node->over, frame);
  run_.line = node->line;
  if (!node->recursive) {
    return loop(node, frame, over, 0);
  }
  loop(node, new_frame(node->slots, frame), over, 0);
  return Flow::kNext;
}

Evaluator::Flow Evaluator::loop(const ForNode* node, Activation* frame, const Value& over,
                                int64_t depth0) {
  LoopFilter filter;
  if (node->test != nullptr) {
    filter.takes = &Evaluator::takes;
    filter.context = run_.arena.make<Filtering>(Filtering{this, node, frame});
    enter(node->test_loads, frame);
  }
  Loop* const loop = run_.arena.make<Loop>(run_, over, filter);
  loop->depth0 = depth0;
  if (node->recursive) {
    loop->recurses = run_.arena.make<Recursion>(Recursion{node, frame->outer});
  }
  // A loop that breaks off at once has not gone through anything, for jinja2.
  bool completed = false;
  const Flow flow = loop_body(node, frame, loop, &completed);
  if (flow == Flow::kNext && !completed && !node->otherwise.empty()) {
    enter(node->else_loads, frame);
    return execute(node->otherwise, frame);
  }
  return flow;
}

Evaluator::Flow Evaluator::loop_body(const ForNode* node, Activation* frame, Loop* loop,
                                     bool* completed) {
  constexpr uint64_t kTurn = 4;  // as long as that many nodes take
  while (loop->advance(run_)) {
    run_.spend(kTurn);
    run_.line = node->line;
    assign(node->target, loop->current, frame);
    if (node->uses_loop) {
      Value& value = frame->slots[node->loop_slot];
      value = Value();
      value.kind = Kind::kLoop;
      value.loop = loop;
    }
    enter(node->loads, frame);
    const Flow flow = execute(node->body, frame);
    if (flow == Flow::kBreak) {
      break;
    }
    *completed |= flow == Flow::kNext;
  }
  return Flow::kNext;
}

bool Evaluator::takes(void* context, const Value& item) {
  const Filtering& filtering = *static_cast<const Filtering*>(context);
  Evaluator& self = *filtering.evaluator;
  self.assign(filtering.node->test_target, item, filtering.frame);
  return self.is_true(filtering.node->test, filtering.frame);
}

Value Evaluator::call_loop(const Loop& called, const Given& given) {
  if (called.recurses == nullptr) {
    fail({"TypeError: The loop must have the 'recursive' marker to be called recursively."});
  }
  if (given.count != 1 || given.named_count != 0) {
    fail({"TypeError: loop() takes one argument: what to go through"});
  }
  const Recursion& recursion = *static_cast<const Recursion*>(called.recurses);
  const size_t mark = out_.size();
  ++capturing_;
  loop(recursion.node, new_frame(recursion.node->slots, recursion.outer), given.positional[0],
       called.depth0 + 1);
  --capturing_;
  return captured_since(mark);
}

}  // namespace headrace::text::jinja
