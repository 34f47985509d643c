// How much of the host's time in a step is hidden by beginning the next step before the results of
// the one under way are there.
//
//   overlap [plain|mixed] [REQUESTS] [STEPS] [MICROSECONDS that the device takes for a step]
//   overlap smoke
//
// The engine as it is, over a fake device that takes the same time for every step. One run waits
// for each step's results before the next begins, the other doesn't; what a step takes beyond the
// device's time is the host's, which the device sees as idle time. Medians, and the mean of all
// steps in brackets; the better of two runs each, in turns. Requests are plain, or mixed: a quarter
// has penalties, a quarter is guided, and two adapters serve two thirds of all.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fakes/fake_constraint.h"
#include "fakes/fake_engine.h"
#include "fakes/fake_model.h"

namespace headrace::bench {
namespace {

using testing::FakeConstraint;
using testing::FakeEngine;

struct Run {
  int32_t requests = 64;
  int32_t steps = 300;
  int64_t device_microseconds = 2000;
  bool mixed = false;
};

constexpr int32_t kVocabulary = 50;

/// Any token but those that divide the number of tokens so far.
testing::Following any_but_divisors(std::span<const int32_t> output) {
  testing::Following out;
  for (int32_t token = 1; token < kVocabulary; ++token) {
    if (token == 1 || static_cast<int32_t>(output.size()) % token != 0) out.tokens.push_back(token);
  }
  return out;
}

Request submit(FakeEngine& fake, int32_t i, const Run& run) {
  SamplingParams params{.temperature = 0, .max_tokens = run.steps, .ignore_eos = true};
  RequestOptions rest;
  if (run.mixed) {
    if (i % 4 == 1) params.repetition_penalty = 1.05f;
    if (i % 4 == 3) rest.constraint = FakeConstraint::make(any_but_divisors);
    if (i % 3 > 0) rest.lora_name = i % 3 == 1 ? "one" : "two";
  }
  return fake.submit({i % kVocabulary, i / kVocabulary}, std::move(params), std::move(rest));
}

/// Microseconds of a step: other processes' time slices come between, and the mean has them.
struct StepTime {
  double median = 0, mean = 0;
};

StepTime step_time(const Run& run, bool ahead) {
  ModelOptions options = FakeEngine::default_options();
  options.max_num_seqs = run.requests;
  options.max_num_batched_tokens = 4 * run.requests;
  options.max_model_len = run.steps + 16;
  options.num_kv_blocks = run.requests * (run.steps / options.block_size + 2);
  options.max_loras = 2;
  FakeEngine fake(options, {.max_logit_rows = run.requests, .late = true, .ahead = ahead});
  for (const auto& [name, rank] : {std::pair("one", "1"), std::pair("two", "2")}) {
    fake.engine->load_lora("m", name, rank);
  }
  fake.control->device_nanoseconds = 1000 * run.device_microseconds;
  fake.control->hold();
  std::vector<Request> requests;
  std::vector<double> times;  // when the first one's tokens were published
  times.reserve(static_cast<size_t>(run.steps) + 1);
  for (int32_t i = 0; i < run.requests; ++i) requests.push_back(submit(fake, i, run));
  fake.control->wait_until_held();
  requests.front().results().on_output([&times] {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    times.push_back(std::chrono::duration<double, std::micro>(now).count());
  });
  fake.control->resume();
  for (Request& request : requests) request.wait();
  fake.engine->stop_model("m");
  const double mean = (times.back() - times.front()) / static_cast<double>(times.size() - 1);
  std::adjacent_difference(times.begin(), times.end(), times.begin());
  std::sort(times.begin() + 1, times.end());
  return {times[1 + (times.size() - 1) / 2], mean};
}

void print_row(const char* what, const StepTime& step, double device) {
  const auto share = [&](double time) { return 100 * (time - device) / device; };
  std::printf("  %-22s %8.1f us a step; the host's are %4.1f %% of the device's time (%4.1f %%)\n",
              what, step.median, share(step.median), share(step.mean));
}

void measure(const Run& run, int tries) {
  StepTime times[2];
  for (int i = 0; i < 2 * tries; ++i) {
    StepTime& best = times[i % 2];
    const StepTime now = step_time(run, i % 2 == 1);
    if (i < 2 || now.median < best.median) best = now;
  }
  std::printf("%d %s requests, a device of %.0f us a step:\n", run.requests,
              run.mixed ? "mixed" : "plain", static_cast<double>(run.device_microseconds));
  print_row("waiting for each step", times[0], static_cast<double>(run.device_microseconds));
  print_row("the next begun before", times[1], static_cast<double>(run.device_microseconds));
}

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  using headrace::bench::Run;
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "smoke") {
    for (const bool mixed : {false, true}) {
      headrace::bench::measure(
          {.requests = 4, .steps = 10, .device_microseconds = 100, .mixed = mixed}, 1);
    }
    return 0;
  }
  const auto number = [&](int place, int otherwise, int least) {
    return argc > place ? std::max(std::atoi(argv[place]), least) : otherwise;
  };
  for (const bool mixed : {false, true}) {
    if (first == (mixed ? "plain" : "mixed")) continue;
    Run run{
        .requests = mixed ? 256 : 64, .device_microseconds = mixed ? 6000 : 2000, .mixed = mixed};
    run.requests = number(2, run.requests, 1);
    run.steps = number(3, run.steps, 3);
    run.device_microseconds = number(4, static_cast<int>(run.device_microseconds), 1);
    headrace::bench::measure(run, 2);
  }
}
