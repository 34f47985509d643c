#pragma once

// What trials share.

#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <random>
#include <string>

#include "base/checked_math.h"
#include "cuda/host/memory/pinned.h"
#include "cuda/host/runtime/context.h"
#include "cuda/host/step/step_graphs.h"
#include "tensor/dtype.h"

namespace headrace::cuda {

/// Places of arrays behind each other, each aligned to 256 bytes.
class TrialPlaces {
 public:
  size_t take(size_t bytes) {
    const size_t at = end_;
    end_ += round_up(bytes, size_t{256});
    return at;
  }
  size_t bytes() const { return end_; }

 private:
  size_t end_ = 0;
};

/// Device memory that isn't the model's.
class TrialMemory {
 public:
  TrialMemory(CudaContext& context, size_t bytes);
  ~TrialMemory() { static_cast<void>(context_.api().free_device(data_)); }
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  CudaContext& context_;
  void* data_ = nullptr;
};

/// Numbers on the GPU that kernels read, and what they leave.
class Trial {
 public:
  Trial(CudaContext& context, size_t input_bytes, size_t output_bytes);
  /// Nothing of it is left on the stream.
  ~Trial() { static_cast<void>(context_.api().synchronize(context_.stream())); }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  CudaContext& context() const { return context_; }
  std::byte* inputs() const { return inputs_.data(); }
  std::byte* outputs() const { return outputs_.data(); }
  /// Host memory: what upload() takes, what download() leaves.
  std::byte* staging() const { return staging_.data(); }
  void upload();
  void clear_outputs();
  /// Copies what kernels have left in the inputs to the outputs: places of both.
  void keep(size_t from, size_t to, size_t bytes);
  void download();
  /// Calls what launches kernels the first time, records and launches it the second, and launches
  /// the record from then on. `what`: says which kernels, the same for the same ones.
  void run(int64_t what, const std::function<void()>& launches) {
    graphs_.run({this, this, what, 1}, 0, launches);
  }

 private:
  CudaContext& context_;
  size_t input_bytes_, output_bytes_;
  PinnedBuffer staging_;
  TrialMemory inputs_, outputs_;
  StepGraphs graphs_;
};

/// How Trial::run() launches the first time, the second and the third, for messages.
inline constexpr const char* kTrialRuns[] = {"", ", recorded", ", from a graph"};

/// Numbers from 1 to 2 as float16, and from 1/128 to 2 as bfloat16, of both signs.
inline uint16_t random_half(std::mt19937& random) {
  return static_cast<uint16_t>(0x3c00 | (random() & 0x83ff));
}

/// FP8 numbers whose sums of products are exact in any order and on every card: whole numbers up to
/// 9 in weights and up to 7 in rows, times a power of two that a feature has, or all rows. 128
/// products come to less than 2^13, which the shortest sums of tensor cores hold (Hopper's: 13 bits
/// below the largest exponent). All of k comes to more where the numbers have one sign: a chain
/// that goes on behind its unit loses bits. Features differ in their codes' exponents, odd ones
/// have both signs; odd rows are negative. The first number of each unit of a row is its largest:
/// scales are 1.
inline float trial_weight(std::mt19937& random, int64_t feature) {
  const float size =
      std::ldexp(static_cast<float>(1 + random() % 9), static_cast<int>(feature % 15) - 9);
  return feature % 2 == 1 && random() % 2 == 1 ? -size : size;
}
inline float trial_number(std::mt19937& random, int64_t row, bool first_of_unit) {
  const float size = first_of_unit ? 448.0f : 64.0f * static_cast<float>(1 + random() % 7);
  return row % 2 == 1 ? -size : size;
}
/// Of a weight; so short that sums times scales are exact, too.
inline float trial_scale(std::mt19937& random) {
  return 0.5f + static_cast<float>(random() % 8) / 8.0f;
}

/// Element `i` of 16-bit floats that lie anywhere.
inline float half_at(DType dtype, const std::byte* from, int64_t i) {
  uint16_t bits = 0;
  std::memcpy(&bits, from + 2 * i, sizeof bits);
  return dtype == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}
/// The number, rounded to 16 bits.
inline float rounded_to(DType dtype, float number) {
  return dtype == DType::kBF16 ? bf16_to_f32(f32_to_bf16(number)) : f16_to_f32(f32_to_f16(number));
}

/// What `trial` returns; an error that it throws is a reason, too, unless the GPU is lost.
std::string guarded(CudaContext& context, const std::function<std::string()>& trial);

}  // namespace headrace::cuda
