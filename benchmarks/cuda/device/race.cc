#include <cstdio>

#include "benchmarks/cuda/device/bench_device.h"
#include "benchmarks/cuda/work.h"

namespace headrace::bench {

std::vector<double> race(BenchDevice& device, const std::vector<Contestant>& contestants,
                         const RaceOptions& options) {
  std::vector<std::unique_ptr<Recording>> runs, preparations;
  for (const Contestant& one : contestants) {
    // Kernels are loaded at their first launch, which a recording may not be.
    if (one.prepare) one.prepare();
    one.launch(0);
    runs.push_back(device.record([&] {
      for (int turn = 0; turn < options.turns; ++turn) one.launch(turn);
    }));
    preparations.push_back(one.prepare ? device.record(one.prepare) : nullptr);
  }
  std::vector<std::vector<double>> seconds(contestants.size());
  for (int round = 0; round <= options.rounds; ++round) {
    for (size_t i = 0; i < runs.size(); ++i) {
      if (preparations[i] != nullptr) preparations[i]->run();
      const double taken = runs[i]->run() / options.turns;
      if (round > 0) seconds[i].push_back(taken);
    }
  }
  if (options.profile) {
    if (preparations[0] != nullptr) preparations[0]->run();
    std::printf("profiled: %d launches\n", options.turns);  // of the next row
    device.profile(*runs[0]);
  }
  std::vector<double> out;
  for (auto& each : seconds) out.push_back(median(std::move(each)));
  return out;
}

}  // namespace headrace::bench
