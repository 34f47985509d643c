// How much of the host's time in a step is hidden by beginning the next step before the results of
// the one under way are there.
//
//   overlap [REQUESTS] [STEPS] [MICROSECONDS that the device takes for a step]
//   overlap smoke
//
// The engine as it is, over a fake device that takes the same time for every step. One run waits
// for each step's results before the next begins, the other doesn't; what a step takes beyond the
// device's time is the host's. Medians; the better of two runs each, in turns.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "fakes/fake_model.h"

namespace headrace::bench {
namespace {

using testing::FakeEngine;

struct Run {
  int32_t requests = 64;
  int32_t steps = 300;
  int64_t device_microseconds = 2000;
};

/// Microseconds of a step: the median, for other processes' time slices come between.
double step_time(const Run& run, bool ahead) {
  ModelOptions options = FakeEngine::default_options();
  options.max_num_seqs = run.requests;
  options.max_num_batched_tokens = 4 * run.requests;
  options.max_model_len = run.steps + 16;
  options.num_kv_blocks = run.requests * (run.steps / options.block_size + 2);
  FakeEngine fake(options, {.max_logit_rows = run.requests, .late = true, .ahead = ahead});
  fake.control->device_nanoseconds = 1000 * run.device_microseconds;
  fake.control->hold();
  std::vector<Request> requests;
  std::vector<double> times;  // when the first one's tokens were published
  times.reserve(static_cast<size_t>(run.steps) + 1);
  for (int32_t i = 0; i < run.requests; ++i) {
    requests.push_back(fake.submit(
        {i % 50, i / 50}, {.temperature = 0, .max_tokens = run.steps, .ignore_eos = true}));
  }
  fake.control->wait_until_held();
  requests.front().results().on_output([&times] {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    times.push_back(std::chrono::duration<double, std::micro>(now).count());
  });
  fake.control->resume();
  for (Request& request : requests) request.wait();
  fake.engine->stop_model("m");
  std::adjacent_difference(times.begin(), times.end(), times.begin());
  std::sort(times.begin() + 1, times.end());
  return times[1 + (times.size() - 1) / 2];
}

void measure(const Run& run, int tries) {
  double waiting = 0, ahead = 0;
  for (int i = 0; i < tries; ++i) {
    const double a = step_time(run, false), b = step_time(run, true);
    waiting = i == 0 ? a : std::min(waiting, a);
    ahead = i == 0 ? b : std::min(ahead, b);
  }
  const auto device = static_cast<double>(run.device_microseconds);
  waiting = std::max(waiting, device);
  ahead = std::max(ahead, device);
  std::printf("%d requests, a device of %.0f us a step:\n", run.requests, device);
  std::printf("  waiting for each step  %8.1f us a step, %6.1f us of them the host's\n", waiting,
              waiting - device);
  std::printf("  the next begun before  %8.1f us a step, %6.1f us of them the host's\n", ahead,
              ahead - device);
  const double host = waiting - device;
  if (host > 0) std::printf("  hidden: %.0f %% of it\n", 100 * (waiting - ahead) / host);
}

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  using headrace::bench::Run;
  if (argc > 1 && std::string(argv[1]) == "smoke") {
    headrace::bench::measure({.requests = 4, .steps = 10, .device_microseconds = 100}, 1);
    return 0;
  }
  Run run;
  if (argc > 1) run.requests = std::max(std::atoi(argv[1]), 1);
  if (argc > 2) run.steps = std::max(std::atoi(argv[2]), 3);
  if (argc > 3) run.device_microseconds = std::max(std::atoi(argv[3]), 1);
  headrace::bench::measure(run, 2);
}
