#include "engine/load/load_watch.h"

#include <algorithm>

#include "backend/ranks/rank_group.h"
#include "base/check.h"

namespace headrace::internal {

LoadWatch::LoadWatch(const ModelOptions& options)
    : sink_(options.load_progress), stop_(options.load_stop), checker_([this] { check(); }) {}

void LoadWatch::check() const {
  if (stop_.stop_requested()) throw_error(ErrorCode::kCancelled, "the load was cancelled.");
  if (failed_) throw OtherRankFailed();
}

void LoadWatch::report() {
  if (!sink_) return;
  const Amount& now = amount();
  sink_({.stage = stage_, .bytes_done = std::min(now.done, now.total), .bytes_total = now.total});
}

void LoadWatch::expect(LoadStage stage, size_t bytes) {
  const MutexLock lock(mutex_);
  amounts_[static_cast<size_t>(stage)].total += bytes;
}

void LoadWatch::enter(LoadStage stage) {
  check();
  const MutexLock lock(mutex_);
  stage_ = stage;
  report();
}

void LoadWatch::pass(size_t bytes) {
  check();
  const MutexLock lock(mutex_);
  amount().done += bytes;
  report();
}

void LoadWatch::finish() {
  check();
  const MutexLock lock(mutex_);
  amount().done = amount().total;
  report();
}

std::unique_ptr<PackedWeight> WatchedReader::matrix(const MatrixSource& source) {
  auto weight = reader_.matrix(source);
  if (weight != nullptr) watch_.pass(weight->bytes());
  return weight;
}

DeviceVector WatchedReader::vector(const VectorSource& source) {
  DeviceVector vector = reader_.vector(source);
  if (!source.empty()) watch_.pass(vector.bytes());
  return vector;
}

}  // namespace headrace::internal

const char* headrace::load_stage_name(LoadStage stage) noexcept {
  switch (stage) {
    case LoadStage::kOpening:
      return "opening";
    case LoadStage::kChecking:
      return "checking";
    case LoadStage::kWeights:
      return "weights";
    case LoadStage::kReserving:
      return "reserving";
  }
  return "unknown";
}
