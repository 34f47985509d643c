#pragma once

// What this machine can do: sustained read bandwidth and the peak rates of the multiply
// instructions that kernels use. A rate is the best of several repeats: a limit is what the
// machine can do, not what it did while a neighbour was busy. All rates are those of `threads`
// threads together; an instruction set that the machine lacks has rate 0.

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

namespace headrace::bench {

/// Reads a buffer of `bytes`, each thread its own sequential share, on huge pages where granted.
class ReadProbe {
 public:
  ReadProbe(int threads, size_t bytes);
  double bytes_per_second(int repeats = 5);

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  size_t share_;
  std::vector<std::unique_ptr<char, Free>> parts_;
};

/// Operations per second, a multiply and an add counted as two.
double f32_peak(int threads);
double bf16_peak(int threads);
double int8_peak(int threads);

}  // namespace headrace::bench
