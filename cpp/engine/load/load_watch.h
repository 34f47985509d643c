#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <stop_token>

#include "base/mutex.h"
#include "headrace/options.h"
#include "model/weights/weight_reader.h"

namespace headrace::internal {

/// Tells how far a load is, and ends it when its owner asks for that, or when a rank has failed.
/// Any thread may call any method; each throws Error(kCancelled) once the stop is requested, and
/// what the owner's callback throws.
class LoadWatch {
 public:
  explicit LoadWatch(const ModelOptions& options);
  LoadWatch(const LoadWatch&) = delete;
  LoadWatch& operator=(const LoadWatch&) = delete;

  /// `bytes` more will pass in a stage.
  void expect(LoadStage stage, size_t bytes);
  void enter(LoadStage stage);
  /// Bytes of the stage that was entered last have passed.
  void pass(size_t bytes);
  /// Whatever was expected of the stage entered last, all of it has passed.
  void finish();
  void check() const;
  /// A rank has failed: the others' calls throw OtherRankFailed from now on.
  void fail() noexcept { failed_ = true; }
  /// check(), for what takes a function. Lives as long as the watch.
  const std::function<void()>& checker() const noexcept { return checker_; }

 private:
  struct Amount {
    size_t done = 0, total = 0;
  };
  Amount& amount() HEADRACE_REQUIRES(mutex_) { return amounts_[static_cast<size_t>(stage_)]; }
  void report() HEADRACE_REQUIRES(mutex_);

  const LoadProgressSink sink_;
  const std::stop_token stop_;
  const std::function<void()> checker_;
  std::atomic<bool> failed_{false};
  Mutex mutex_;  // held while the sink runs
  LoadStage stage_ HEADRACE_GUARDED_BY(mutex_) = LoadStage::kOpening;
  std::array<Amount, 4> amounts_ HEADRACE_GUARDED_BY(mutex_);
};

/// Tells a watch of the weights that another reader reads.
class WatchedReader final : public WeightReader {
 public:
  WatchedReader(WeightReader& reader, LoadWatch& watch) : reader_(reader), watch_(watch) {}

  std::unique_ptr<PackedWeight> matrix(const MatrixSource& source) override;
  DeviceVector vector(const VectorSource& source) override;
  size_t adopted_bytes() const override { return reader_.adopted_bytes(); }

 private:
  WeightReader& reader_;
  LoadWatch& watch_;
};

}  // namespace headrace::internal
