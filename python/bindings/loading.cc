#include "loading.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "interpreter/interpreter_gate.h"
#include "interpreter/waiting.h"

namespace py = pybind11;

namespace headrace::python {

namespace {

constexpr std::chrono::milliseconds kLookInterval{100};

/// A load under way, shared by its thread and the caller.
class Loading {
 public:
  Loading(ModelOptions options, const std::stop_token& closing,
          const std::function<void(const ModelOptions&)>& load)
      : chain_(closing, [this] { stop_.request_stop(); }) {
    options.load_stop = stop_.get_token();
    options.load_progress = [this](const LoadProgress& progress) {
      const std::lock_guard lock(mutex_);
      news_ = progress;
    };
    const auto run = [this, load, options = std::move(options)] {
      try {
        load(options);
      } catch (...) {
        failure_ = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      done_ = true;
      changed_.notify_all();
    };
    try {
      thread_ = std::thread(run);
    } catch (const std::system_error&) {  // then it is not to be interrupted
      const GilRelease release;
      run();
    }
  }

  /// Whether the load is over; waits for that, a moment at most. REQUIRES: the GIL is held.
  bool wait() {
    const GilRelease release;
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLookInterval, [this] { return done_; });
  }

  std::optional<LoadProgress> take_news() {
    const std::lock_guard lock(mutex_);
    return std::exchange(news_, std::nullopt);
  }

  /// Ends it. REQUIRES: the GIL is held.
  void cancel() {
    stop_.request_stop();
    join();
  }
  void join() {
    const GilRelease release;
    if (thread_.joinable()) thread_.join();
  }
  /// REQUIRES: join(), or cancel(), before.
  const std::exception_ptr& failure() const { return failure_; }

 private:
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::optional<LoadProgress> news_;
  bool done_ = false;

  std::exception_ptr failure_;  // the thread's until it has ended
  std::stop_source stop_;
  const std::stop_callback<std::function<void()>> chain_;
  std::thread thread_;
};

void tell(const std::optional<py::object>& progress, const std::optional<LoadProgress>& news) {
  if (!progress || !news) return;
  (*progress)(load_stage_name(news->stage), news->bytes_done, news->bytes_total);
}

}  // namespace

void run_load(ModelOptions options, const std::optional<py::object>& progress,
              const std::stop_token& closing, const std::function<void(const ModelOptions&)>& load,
              const std::function<void()>& undo) {
  Loading loading(std::move(options), closing, load);
  const bool hears_signals = on_main_thread();
  try {
    for (bool over = false; !over;) {
      over = loading.wait();
      if (hears_signals && PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (!over) tell(progress, loading.take_news());
    }
    loading.join();
    if (!loading.failure()) tell(progress, loading.take_news());
  } catch (...) {
    loading.cancel();
    if (!loading.failure() && undo) {
      const GilRelease release;
      undo();
    }
    throw;
  }
  if (loading.failure()) std::rethrow_exception(loading.failure());
}

}  // namespace headrace::python
