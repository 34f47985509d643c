#pragma once

// What the kernels' tests share: memory that kernels see, filled with random numbers, with NaN
// behind every row. The same tests run in the emulation (plain memory, three thread orders) and,
// built with the real kernels, on a GPU (page-locked host memory; see gpu_support.cc).

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "cuda/kernels/matrix.h"
#include "device_memory.h"
#include "every_case.h"
#include "tensor/dtype.h"

namespace headrace::cuda {

inline float round_to_dtype(DType dtype, float value) {
  if (dtype == DType::kBF16) return bf16_to_f32(f32_to_bf16(value));
  if (dtype == DType::kF16) return f16_to_f32(f32_to_f16(value));
  return value;
}

/// Half the distance from 1 to the next number.
inline double roundoff(DType dtype) {
  return dtype == DType::kBF16 ? 0x1p-8 : dtype == DType::kF16 ? 0x1p-11 : 0x1p-24;
}

/// Elements in a kernel's memory.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count), memory_(allocate_device(count * sizeof(T))) {}
  DeviceArray(std::span<const T> values) : DeviceArray(values.size()) {  // NOLINT
    std::copy(values.begin(), values.end(), data());
  }
  DeviceArray(const std::vector<T>& values) : DeviceArray(std::span<const T>(values)) {}  // NOLINT
  DeviceArray(std::initializer_list<T> values)
      : DeviceArray(std::span<const T>(values.begin(), values.size())) {}

  T* data() const { return reinterpret_cast<T*>(memory_.get()); }
  size_t size() const { return count_; }
  std::vector<T> values() const { return {data(), data() + count_}; }

 private:
  size_t count_;
  std::shared_ptr<char> memory_;
};

/// A matrix of `dtype` in memory aligned to 256 bytes.
class DeviceMatrix {
 public:
  DeviceMatrix(DType dtype, int64_t rows, int64_t cols, int64_t gap = 0, int64_t offset = 0)
      : dtype_(dtype), rows_(rows), cols_(cols), stride_(cols + gap), size_(dtype_size(dtype)) {
    memory_ = allocate_device(static_cast<size_t>(rows * stride_ + offset) * size_);
    data_ = memory_.get() + static_cast<size_t>(offset) * size_;
  }
  DeviceMatrix(DType dtype, int64_t rows, int64_t cols, const std::vector<float>& values,
               int64_t gap = 0, int64_t offset = 0)
      : DeviceMatrix(dtype, rows, cols, gap, offset) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) set(i, j, values[static_cast<size_t>(i * cols + j)]);
    }
  }

  Matrix matrix() const { return {data_, rows_, cols_, stride_}; }
  void* data() const { return data_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  DType dtype() const { return dtype_; }

  float at(int64_t i, int64_t j) const {
    const char* from = element(i, j);
    if (dtype_ == DType::kF32) {
      float value;
      std::memcpy(&value, from, sizeof value);
      return value;
    }
    uint16_t bits;
    std::memcpy(&bits, from, sizeof bits);
    return dtype_ == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  }
  void set(int64_t i, int64_t j, float value) {
    if (dtype_ == DType::kF32) {
      std::memcpy(element(i, j), &value, sizeof value);
      return;
    }
    const uint16_t bits = dtype_ == DType::kBF16 ? f32_to_bf16(value) : f32_to_f16(value);
    std::memcpy(element(i, j), &bits, sizeof bits);
  }
  std::vector<float> values() const {
    std::vector<float> out;
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < cols_; ++j) out.push_back(at(i, j));
    }
    return out;
  }

 private:
  char* element(int64_t i, int64_t j) const {
    return data_ + static_cast<size_t>(i * stride_ + j) * size_;
  }

  DType dtype_;
  int64_t rows_, cols_, stride_;
  size_t size_;
  std::shared_ptr<char> memory_;
  char* data_;
};

class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed), engine_(seed) {}
  std::string trace() const { return "seed " + std::to_string(seed_); }
  int64_t integer(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  float uniform(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(engine_);
  }
  /// Numbers that `dtype` holds exactly.
  std::vector<float> uniforms(DType dtype, int64_t count, float low = -1.0f, float high = 1.0f) {
    std::vector<float> out(static_cast<size_t>(count));
    for (float& x : out) x = round_to_dtype(dtype, uniform(low, high));
    return out;
  }

 private:
  uint64_t seed_;
  std::mt19937_64 engine_;
};

inline constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

/// Every kernel's test runs under each of the schedules that there are.
class KernelTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_device_schedule(GetParam()); }
  void TearDown() override { set_device_schedule(0); }
};

/// The last one is shuffled, where there are several.
inline int first_schedule() { return every_case() ? 0 : kDeviceSchedules - 1; }

#define HEADRACE_KERNEL_TESTS(suite) \
  INSTANTIATE_TEST_SUITE_P(Schedules, suite, testing::Range(first_schedule(), kDeviceSchedules))

}  // namespace headrace::cuda
