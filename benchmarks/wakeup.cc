// From the end of a step, when its tokens have been chosen, to the moment when a waiting thread has
// them: publishing, the wake-up and the scheduler of the operating system.
//
//   wakeup [STEPS] [MICROSECONDS of a step]
//   wakeup smoke
//
// A model without arithmetic keeps the engine's thread busy for each step, as a real one does.
// "get": one thread waits for one request of many; "selector": one thread for all of them, timed
// when it has read the last; "threads": a thread for each, all latencies.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "fakes/fake_engine.h"
#include "fakes/fake_model.h"
#include "headrace/output_selector.h"

namespace headrace::bench {
namespace {

using testing::FakeEngine;

struct Run {
  int32_t steps = 1000;
  int64_t step_microseconds = 1000;
};

double now() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Bench {
  Bench(const Run& run, int32_t requests)
      : step_microseconds(static_cast<double>(run.step_microseconds)) {
    ModelOptions options = FakeEngine::default_options();
    options.max_num_seqs = 64;
    options.max_model_len = run.steps + 16;
    options.num_kv_blocks = 64 * (run.steps / options.block_size + 2);
    fake = std::make_unique<FakeEngine>(options);
    fake->control->step_nanoseconds = 1000 * run.step_microseconds;
    for (int32_t i = 0; i < requests; ++i) {
      queues.push_back(fake->submit({i % 50, i / 50},
                                    {.temperature = 0, .max_tokens = run.steps, .ignore_eos = true})
                           .results());
    }
  }

  /// `missed`: steps that ended before the last one and were not noticed.
  void note(size_t missed) {
    const double since = now() - static_cast<double>(fake->control->step_end) / 1000 +
                         static_cast<double>(missed) * step_microseconds;
    const std::lock_guard lock(mutex);
    latencies.push_back(since);
  }

  /// Reads one queue to its end, noting each output.
  void read(ResultQueue queue) {
    for (Output out = queue.get(); !out.finished; out = queue.get()) {
      note(out.token_ids.size() - 1);
    }
  }

  void select() {
    OutputSelector selector;
    for (size_t i = 0; i < queues.size(); ++i) selector.add(queues[i], static_cast<int64_t>(i));
    for (size_t running = queues.size(), fresh = 0; running > 0;) {
      selector.wait(std::nullopt);
      for (int64_t tag : selector.take()) {
        while (const auto out = queues[static_cast<size_t>(tag)].get_nowait()) {
          fresh += out->token_ids.size();
          if (out->finished) --running;
        }
      }
      if (fresh < queues.size()) continue;
      note(fresh / queues.size() - 1);
      fresh = 0;
    }
  }

  void report(const char* consumer) {
    std::sort(latencies.begin(), latencies.end());
    const auto at = [&](double share) {
      return latencies.empty() ? 0.0
                               : latencies[static_cast<size_t>(
                                     share * static_cast<double>(latencies.size() - 1))];
    };
    std::printf(
        "{\"consumer\": \"%s\", \"requests\": %zu, \"samples\": %zu, \"p50_us\": %.1f, "
        "\"p90_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n",
        consumer, queues.size(), latencies.size(), at(0.5), at(0.9), at(0.99), at(1.0));
  }

  const double step_microseconds;
  std::unique_ptr<FakeEngine> fake;
  std::vector<ResultQueue> queues;
  std::mutex mutex;
  std::vector<double> latencies;
};

void measure(const Run& run) {
  for (const int32_t requests : {1, 8, 64}) {
    Bench get(run, requests);
    get.read(get.queues.back());  // the last one to be published
    get.report("get");
    Bench selector(run, requests);
    selector.select();
    selector.report("selector");
    Bench threads(run, requests);
    std::vector<std::thread> readers;
    for (const ResultQueue& queue : threads.queues) {
      readers.emplace_back([&] { threads.read(queue); });
    }
    for (std::thread& reader : readers) reader.join();
    threads.report("threads");
  }
}

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  headrace::bench::Run run;
  if (argc > 1 && std::string(argv[1]) == "smoke") {
    run = {20, 100};
  } else {
    if (argc > 1) run.steps = std::atoi(argv[1]);
    if (argc > 2) run.step_microseconds = std::atoll(argv[2]);
  }
  headrace::bench::measure(run);
}
