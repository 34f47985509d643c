// What this GPU's tensor cores make of sums of FP8 products:
//
//   gpu_float8_probe [--cublaslt LIBRARY] >FILE
//
// Prints lines of JSON. First, for each set of operands that sum_cases.cc makes, the bits of what
// wgmma and mma.sync give: 1 to 4 steps of 32 k and an accumulator. Then how far products are from
// exact sums, by k (sum_errors.h); cuBLASLt's too where the library is found. Some seconds on an
// H100. Exits with 2 where there is no usable GPU.

#include <cstdio>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/cuda/device/bench_device.h"
#include "benchmarks/cuda/device/gpu_main.h"
#include "benchmarks/cuda/float8/sum_cases.h"
#include "benchmarks/cuda/float8/sum_errors.h"
#include "benchmarks/cuda/float8/tensor_core_sums.h"

namespace headrace::bench {
namespace {

/// A set's operands on the device, a multiple of kCasesOfBlock.
struct DeviceSet {
  DeviceArray<uint8_t> a, b;
  DeviceArray<float> start, out;
  TensorCoreSums args;

  DeviceSet(BenchDevice& device, const SumSet& set, size_t count)
      : a(device, count * kMostSumCodes),
        b(device, count * kMostSumCodes),
        start(device, count),
        out(device, count * kWgmmaCopies) {
    std::vector<uint8_t> codes[2];
    std::vector<float> starts(count);
    for (auto& side : codes) side.resize(count * kMostSumCodes);
    for (size_t i = 0; i < set.cases.size(); ++i) {
      const SumCase& one = set.cases[i];
      std::memcpy(codes[0].data() + i * kMostSumCodes, one.a.data(), kMostSumCodes);
      std::memcpy(codes[1].data() + i * kMostSumCodes, one.b.data(), kMostSumCodes);
      starts[i] = one.start;
    }
    device.upload(a.data(), codes[0].data(), codes[0].size());
    device.upload(b.data(), codes[1].data(), codes[1].size());
    device.upload(start.data(), starts.data(), count * sizeof(float));
    args = {a.data(), b.data(), start.data(), out.data(), static_cast<int>(count), set.steps};
  }
};

/// The cases' bits, 16 a line; and how many copies of a case differ.
void print_bits(BenchDevice& device, const SumSet& set, const char* way, const DeviceSet& on_device,
                size_t copies) {
  constexpr size_t kOfLine = 16;
  std::vector<uint32_t> bits(static_cast<size_t>(on_device.args.count) * copies);
  device.download(bits.data(), on_device.out.data(), 4 * bits.size());
  int differ = 0;
  for (size_t i = 0; i < bits.size(); ++i) differ += bits[i] != bits[i / copies * copies];
  for (size_t first = 0; first < set.cases.size(); first += kOfLine) {
    std::printf(
        "{\"sums_by\": \"%s\", \"set\": \"%s\", \"steps\": %d, \"first\": %zu, \"bits\": \"", way,
        set.name.c_str(), set.steps, first);
    for (size_t i = first; i < std::min(first + kOfLine, set.cases.size()); ++i) {
      std::printf("%s%08x", i == first ? "" : " ", bits[i * copies]);
    }
    std::printf("\"}\n");
  }
  if (differ > 0) {
    std::printf("{\"sums_by\": \"%s\", \"set\": \"%s\", \"copies_that_differ\": %d}\n", way,
                set.name.c_str(), differ);
  }
}

void print_sums(BenchDevice& device) {
  for (const SumSet& set : sum_sets()) {
    const size_t count = (set.cases.size() + kCasesOfBlock - 1) / kCasesOfBlock * kCasesOfBlock;
    const DeviceSet on_device(device, set, count);
    if (device.traits().has_wgmma) {
      sum_by_wgmma(on_device.args, device.stream());
      print_bits(device, set, "wgmma", on_device, kWgmmaCopies);
    }
    sum_by_mma(on_device.args, device.stream());
    print_bits(device, set, "mma.sync", on_device, kMmaCopies);
  }
}

int run(const std::string& cublaslt) {
  const std::unique_ptr<BenchDevice> device = make_gpu_device();
  std::printf("{\"device\": \"%s\"}\n", device->traits().name.c_str());
  print_sums(*device);
  std::fflush(stdout);
  std::optional<CublasLt> peer;
  try {
    peer.emplace(cublaslt);
  } catch (const std::runtime_error& e) {
    std::printf("{\"missing\": \"cuBLASLt\", \"why\": \"%s\"}\n", e.what());
  }
  print_sum_errors(*device, peer ? &*peer : nullptr);
  return 0;
}

std::string parse(int argc, char** argv) {
  if (argc == 1) return "";
  if (argc == 3 && std::string(argv[1]) == "--cublaslt") return argv[2];
  throw std::invalid_argument("usage: gpu_float8_probe [--cublaslt LIBRARY]");
}

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  using namespace headrace::bench;  // NOLINT: this program's own
  return gpu_main([&] { return run(parse(argc, argv)); });
}
