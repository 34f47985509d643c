#include "cuda/host/step_graphs.h"

#include <algorithm>

#include "base/checked_math.h"

namespace headrace::cuda {

namespace {

// A record of 32 layers takes a few MiB of the GPU.
constexpr size_t kMaxGraphs = 96;

}  // namespace

int64_t StepGraphs::bucket(int64_t rows, int64_t limit) {
  int64_t out = 1;
  while (out < rows && out < 8) out *= 2;
  if (out < rows) out = rows <= 32 ? round_up<int64_t>(rows, 8) : round_up<int64_t>(rows, 16);
  return std::min(out, limit);
}

void StepGraphs::run(const GraphKey& key, int generation, const std::function<void()>& ops) {
  if (generation != generation_) retire();
  generation_ = generation;
  const auto found = graphs_.find(key);
  if (found == graphs_.end()) {
    ops();
    if (graphs_.size() >= kMaxGraphs) retire();
    graphs_.emplace(key, nullptr);
    return;
  }
  if (found->second == nullptr) found->second = record(ops);
  context_.check(context_.api().launch(found->second, context_.stream()), "launching a step");
}

GraphExec StepGraphs::record(const std::function<void()>& ops) {
  CudaApi& api = context_.api();
  context_.check(api.begin_capture(context_.stream()), "recording a step");
  Graph graph = nullptr;
  recording_ = true;
  try {
    ops();
  } catch (...) {
    recording_ = false;
    if (api.end_capture(context_.stream(), &graph) == kSuccess && graph != nullptr) {
      static_cast<void>(api.destroy_graph(graph));
    }
    throw;
  }
  recording_ = false;
  context_.check(api.end_capture(context_.stream(), &graph), "recording a step");
  GraphExec exec = nullptr;
  const Status status = api.instantiate(&exec, graph);
  static_cast<void>(api.destroy_graph(graph));
  context_.check(status, "building a step's graph");
  return exec;
}

// A record that is still running must not go.
void StepGraphs::retire() {
  if (graphs_.empty()) return;
  context_.wait();
  clear();
}

void StepGraphs::clear() noexcept {
  for (const auto& [key, exec] : graphs_) {
    if (exec != nullptr) static_cast<void>(context_.api().destroy_exec(exec));
  }
  graphs_.clear();
}

}  // namespace headrace::cuda
