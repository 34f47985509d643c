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
  /// launching the record from then on. Of kMaxGraphs kinds of steps the one that was used longest
  /// ago makes room for the next. `generation`: of the memory that ops use; another one makes
  /// all records void. Destroy it when nothing runs.
  void run(const GraphKey& key, int generation, const std::function<void()>& ops);
  /// Whether ops() is being recorded: it must only launch.
  bool recording() const noexcept { return recording_; }
  size_t size() const noexcept { return graphs_.size(); }

  /// A record of 32 layers takes a few MiB of the GPU.
  static constexpr size_t kMaxGraphs = 96;
  /// Rows to compute for `rows` rows, so that few graphs serve all: never more than `limit`, which
  /// is at least `rows`.
  static int64_t bucket(int64_t rows, int64_t limit);

 private:
  struct Record {
    GraphExec exec = nullptr;  ///< null: run once, not yet recorded
    uint64_t last_use = 0;     ///< uses_ then
  };

  GraphExec record(const std::function<void()>& ops);
  void drop_oldest();
  void destroy(const Record& step) noexcept;
  void retire();
  void clear() noexcept;

  CudaContext& context_;
  std::map<GraphKey, Record> graphs_;
  uint64_t uses_ = 0;
  int generation_ = 0;
  bool recording_ = false;
};

}  // namespace headrace::cuda
