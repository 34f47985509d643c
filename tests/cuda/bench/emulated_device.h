#pragma once

#include <memory>

#include "benchmarks/cuda/device/bench_device.h"

namespace headrace::bench {

/// A device made of host memory: launches run at once, in the emulation, by the host's clock.
std::unique_ptr<BenchDevice> make_emulated_device();

}  // namespace headrace::bench
