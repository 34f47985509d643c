#pragma once

// Decode steps as CUDA graphs: a step's ops are recorded once and then launched as one.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "cuda/host/context.h"

namespace headrace::cuda {

/// What the recorded ops depend on besides the contents of memory.
struct GraphKey {
  const void* model = nullptr;  ///< whose ops
  const void* cache = nullptr;
  int64_t rows = 0;
  int64_t table_stride = 0;
  auto operator<=>(const GraphKey&) const = default;
};

/// Used by the backend's thread.
class StepGraphs {
 public:
  explicit StepGraphs(CudaContext& context) : context_(context) {}
  ~StepGraphs() { clear(); }
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  /// Runs `ops` on the context's stream: by calling it the first time it sees the key (so that
  /// memory grows and modules load outside of a recording), by recording it the second time, and by
  /// launching the record from then on. `generation`: of the memory that ops use; another one makes
  /// all records void. Destroy it when nothing runs.
  void run(const GraphKey& key, int generation, const std::function<void()>& ops);
  /// Whether ops() is being recorded: it must only launch.
  bool recording() const noexcept { return recording_; }
  size_t size() const noexcept { return graphs_.size(); }

  /// Rows to compute for `rows` rows, so that few graphs serve all: never more than `limit`, which
  /// is at least `rows`.
  static int64_t bucket(int64_t rows, int64_t limit);

 private:
  GraphExec record(const std::function<void()>& ops);
  void retire();
  void clear() noexcept;

  CudaContext& context_;
  std::map<GraphKey, GraphExec> graphs_;  // null: run once, not yet recorded
  int generation_ = 0;
  bool recording_ = false;
};

}  // namespace headrace::cuda
