#include "engine/replica/load_replicas.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <stop_token>
#include <utility>

#include "base/first_failure.h"
#include "base/mutex.h"
#include "engine/devices/device_names.h"
#include "engine/replica/run_on_threads.h"

namespace headrace::internal {

namespace {

/// Makes one progress of several. Bytes of the stages before the weights are the first replica's;
/// the others' weights are as many as its own. Any thread.
class SharedProgress {
 public:
  SharedProgress(LoadProgressSink sink, size_t count) : sink_(std::move(sink)), now_(count) {}

  void note(size_t replica, const LoadProgress& progress) {
    const MutexLock lock(mutex_);
    now_[replica] = progress;
    if (progress.stage == LoadStage::kWeights) weights_ = progress.bytes_total;
    if (progress.stage < LoadStage::kWeights) {
      if (replica == 0) sink_(progress);
      return;
    }
    const auto reserves = [](const LoadProgress& each) {
      return each.stage == LoadStage::kReserving;
    };
    if (std::ranges::all_of(now_, reserves)) {
      sink_({.stage = LoadStage::kReserving});
      return;
    }
    LoadProgress sum{.stage = LoadStage::kWeights, .bytes_total = weights_ * now_.size()};
    for (const LoadProgress& each : now_) {
      if (reserves(each)) sum.bytes_done += weights_;
      if (each.stage == LoadStage::kWeights) sum.bytes_done += each.bytes_done;
    }
    sink_(sum);
  }

 private:
  const LoadProgressSink sink_;
  Mutex mutex_;  // held while the sink runs
  std::vector<LoadProgress> now_ HEADRACE_GUARDED_BY(mutex_);
  size_t weights_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace

std::vector<LoadedModel> load_replicas(const ModelLoader& loader, const std::string& name,
                                       const ModelOptions& options, Logger& logger) {
  check_devices(options);  // before anything is made for each of them
  std::vector<LoadedModel> out;
  if (options.data_parallel_size <= 1) {
    out.push_back(loader(name, options, {}, logger));
    return out;
  }
  const auto start = std::chrono::steady_clock::now();
  const auto count = static_cast<size_t>(options.data_parallel_size);
  SharedProgress progress(options.load_progress, count);
  std::stop_source failed;
  const std::stop_callback pass_on(options.load_stop, [&failed] { failed.request_stop(); });
  FirstFailure failure;
  std::string first_device;
  const auto load = [&](size_t index) {
    ModelOptions own = options;
    own.load_stop = failed.get_token();
    if (options.load_progress) {
      own.load_progress = [&progress, index](const LoadProgress& now) {
        progress.note(index, now);
      };
    }
    try {
      return loader(name, own, {static_cast<int32_t>(index), first_device}, logger);
    } catch (...) {
      failure.keep();
      failed.request_stop();
      std::rethrow_exception(failure.get());
    }
  };

  out.push_back(load(0));
  first_device = out.front().info.device;
  std::vector<std::optional<LoadedModel>> others(count - 1);
  const auto load_other = [&](size_t i) { others[i].emplace(load(i + 1)); };
  if (first_device.starts_with("cuda")) {
    run_on_threads(others.size(), load_other);
  } else {
    for (size_t i = 0; i < others.size(); ++i) load_other(i);
  }
  for (auto& other : others) out.push_back(*std::move(other));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  out.front().info.load_seconds = seconds.count();
  return out;
}

}  // namespace headrace::internal
