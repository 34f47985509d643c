#include "cuda/host/step/step_graphs.h"

#include <algorithm>

#include "base/checked_math.h"

namespace headrace::cuda {

namespace {

/// Nobody else touches the stream while it lives.
class Capturing {
 public:
  explicit Capturing(CudaContext& context) : context_(context) { context.set_capturing(true); }
  ~Capturing() { context_.set_capturing(false); }
  Capturing(const Capturing&) = delete;
  Capturing& operator=(const Capturing&) = delete;

 private:
  CudaContext& context_;
};

}  // namespace

int64_t StepGraphs::bucket(int64_t rows, int64_t limit) {
  int64_t out = 1;
  while (out < rows && out < 8) out *= 2;
  if (out < rows) out = rows <= 32 ? round_up<int64_t>(rows, 8) : round_up<int64_t>(rows, 16);
  return std::min(out, limit);
}

void StepGraphs::run(const GraphKey& key, int generation, const std::function<void()>& ops,
                     const std::function<RecordState(RecordState)>& agree) {
  if (generation != generation_) retire();
  generation_ = generation;
  const auto found = graphs_.find(key);
  RecordState state = RecordState::kUnseen;
  if (found != graphs_.end()) {
    found->second.last_use = ++uses_;
    state = found->second.exec == nullptr ? RecordState::kSeen : RecordState::kRecorded;
  }
  if (agree) state = agree(state);
  if (state == RecordState::kUnseen) {
    ops();
    if (found != graphs_.end()) return;
    if (graphs_.size() >= kMaxGraphs) drop_oldest();
    graphs_.emplace(key, Record{.last_use = ++uses_});
    return;
  }
  Record& step = found->second;
  if (state == RecordState::kSeen) {
    destroy(step);
    step.exec = record(ops, step.trace);
  } else if (check_replays_) {
    check_replay(step.trace, ops);
  }
  context_.check(context_.api().launch(step.exec, context_.stream()), "launching a step");
}

void StepGraphs::check_replay(const StepTrace& recorded, const std::function<void()>& ops) {
  StepTrace now;
  trace_ = &now;
  dry_run_ = true;
  const auto end = [this] {
    trace_ = nullptr;
    dry_run_ = false;
  };
  try {
    ops();
  } catch (...) {
    end();
    throw;
  }
  end();
  recorded.expect(now);
}

Graph StepGraphs::capture(const std::function<void()>& ops, StepTrace& trace) {
  CudaApi& api = context_.api();
  const auto alone = context_.record_alone();
  const Capturing capturing(context_);
  context_.check(api.begin_capture(context_.stream()), "recording a step");
  Graph graph = nullptr;
  recording_ = true;
  trace.clear();
  if (check_replays_) trace_ = &trace;
  try {
    ops();
  } catch (...) {
    recording_ = false;
    trace_ = nullptr;
    if (api.end_capture(context_.stream(), &graph) == kSuccess && graph != nullptr) {
      static_cast<void>(api.destroy_graph(graph));
    }
    throw;
  }
  recording_ = false;
  trace_ = nullptr;
  context_.check(api.end_capture(context_.stream(), &graph), "recording a step");
  return graph;
}

GraphExec StepGraphs::record(const std::function<void()>& ops, StepTrace& trace) {
  CudaApi& api = context_.api();
  const Graph graph = capture(ops, trace);
  GraphExec exec = nullptr;
  context_.finish_others_work();
  const Status status = api.instantiate(&exec, graph);
  static_cast<void>(api.destroy_graph(graph));
  context_.check(status, "building a step's graph");
  const Status uploaded = api.upload(exec, context_.stream());
  if (uploaded != kSuccess) static_cast<void>(api.destroy_exec(exec));
  context_.check(uploaded, "uploading a step's graph");
  return exec;
}

// CUDA lets go of a record that still runs once it is over.
void StepGraphs::drop_oldest() {
  const auto oldest = std::min_element(
      graphs_.begin(), graphs_.end(),
      [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; });
  destroy(oldest->second);
  graphs_.erase(oldest);
}

// What a running record uses must not go.
void StepGraphs::retire() {
  if (graphs_.empty()) return;
  context_.wait();
  clear();
}

void StepGraphs::clear() noexcept {
  for (auto& [key, step] : graphs_) destroy(step);
  graphs_.clear();
}

void StepGraphs::destroy(Record& step) noexcept {
  if (step.exec != nullptr) static_cast<void>(context_.api().destroy_exec(step.exec));
  step.exec = nullptr;
}

}  // namespace headrace::cuda
