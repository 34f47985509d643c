#pragma once

// Decode steps as CUDA graphs: a step's ops are recorded once and then launched as one.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "cuda/host/runtime/context.h"
#include "cuda/host/step/step_trace.h"

namespace headrace::cuda {

/// What the recorded ops depend on besides the contents of memory.
struct GraphKey {
  const void* model = nullptr;  ///< whose ops
  const void* cache = nullptr;
  int64_t rows = 0;
  int64_t table_stride = 0;
  bool rope_axes = false;  ///< the step has StepBatch::rope_positions
  bool draws = false;      ///< it ends with draws, on the first rank
  bool spreads = false;    ///< some of which are spread over many blocks
  auto operator<=>(const GraphKey&) const = default;
};

/// How far the record of a kind of step is.
enum class RecordState : uint8_t {
  kUnseen,    ///< a step runs plainly
  kSeen,      ///< it is recorded, and the record launched
  kRecorded,  ///< the record is launched
};

/// Used by the backend's thread.
class StepGraphs {
 public:
  /// `check_replays`: before a record is launched, `ops` is called once more, to be compared with
  /// those of the record: dry_run() tells it to launch nothing, and note() what it would launch.
  explicit StepGraphs(CudaContext& context, bool check_replays = false)
      : context_(context), check_replays_(check_replays) {}
  ~StepGraphs() { clear(); }
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  /// Runs `ops` on the context's stream: by calling it the first time it sees the key (so that
  /// memory grows and modules load outside of a recording), by recording it the second time, and by
  /// launching the record from then on. Of kMaxGraphs kinds of steps the one that was used longest
  /// ago makes room for the next. `generation`: of the memory that ops use; another one makes
  /// all records void. Destroy it when nothing runs. With check_replays, throws InternalError if
  /// `ops` notes other ops, or others' arguments, than when it was recorded.
  /// `agree`, if there is one, is told the state of the key's record and says what to do: as in
  /// that state, or in one before it.
  void run(const GraphKey& key, int generation, const std::function<void()>& ops,
           const std::function<RecordState(RecordState)>& agree = {});
  /// Whether ops() is being recorded: it must only launch.
  bool recording() const noexcept { return recording_; }
  bool dry_run() const noexcept { return dry_run_; }
  /// By ops(): an op and all of its arguments (StepTrace::note).
  template <class... Args>
  void note(const char* op, const Args&... args) {
    if (trace_ != nullptr) trace_->note(op, args...);
  }
  size_t size() const noexcept { return graphs_.size(); }
  /// Makes all records void; those under way end. What they use stays. Not within run().
  void drop_all() noexcept { clear(); }

  /// A record of 32 layers takes a few MiB of the GPU.
  static constexpr size_t kMaxGraphs = 96;
  /// Rows to compute for `rows` rows, so that few graphs serve all: never more than `limit`, which
  /// is at least `rows`.
  static int64_t bucket(int64_t rows, int64_t limit);

 private:
  struct Record {
    GraphExec exec = nullptr;  ///< null: run once, not yet recorded
    uint64_t last_use = 0;     ///< uses_ then
    StepTrace trace = {};      ///< of its ops, if replays are checked
  };

  GraphExec record(const std::function<void()>& ops, StepTrace& trace);
  Graph capture(const std::function<void()>& ops, StepTrace& trace);
  void check_replay(const StepTrace& recorded, const std::function<void()>& ops);
  void drop_oldest();
  void destroy(Record& step) noexcept;
  void retire();
  void clear() noexcept;

  CudaContext& context_;
  const bool check_replays_;
  StepTrace* trace_ = nullptr;  ///< null: nobody reads it
  bool dry_run_ = false;
  std::map<GraphKey, Record> graphs_;
  uint64_t uses_ = 0;
  int generation_ = 0;
  bool recording_ = false;
};

}  // namespace headrace::cuda
