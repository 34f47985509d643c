#pragma once

// What the op tests share: seeded data, weights made of it, and backends by ISA.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/contract/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "parity/random.h"

namespace headrace::parity {

/// Unit roundoffs: half the distance from 1 to the next number.
inline constexpr double kF32Roundoff = 0x1p-24;
inline constexpr double kBF16Roundoff = 0x1p-8;

inline const std::vector<std::string>& kernel_isas() {
  static const std::vector<std::string> names = {"baseline", "avx2", "avx512", "avx512_bf16"};
  return names;
}

inline bool isa_available(const std::string& isa) {
  const auto names = available_cpu_isas();
  return std::find(names.begin(), names.end(), isa) != names.end();
}

/// Skips, visibly, what this machine cannot run.
#define HEADRACE_REQUIRE_ISA(isa)                \
  if (!::headrace::parity::isa_available((isa))) \
  GTEST_SKIP() << "this machine's CPU cannot run " << (isa)

/// A backend of that ISA, checked to be the one that runs.
inline std::unique_ptr<Backend> make_backend(const std::string& isa, int32_t num_threads = 2) {
  auto backend = make_cpu_backend({.num_threads = num_threads, .isa = isa});
  EXPECT_EQ(backend->device_info().isa, isa);
  return backend;
}

/// A matrix [rows, cols] in a backend's memory.
class Matrix {
 public:
  Matrix(Backend& backend, int64_t rows, int64_t cols)
      : backend_(&backend),
        rows_(rows),
        cols_(cols),
        buffer_(backend.allocate(static_cast<size_t>(rows * cols) * sizeof(float))) {}
  Matrix(Backend& backend, int64_t rows, int64_t cols, const std::vector<float>& values)
      : Matrix(backend, rows, cols) {
    backend.upload(values.data(), buffer_.data, values.size() * sizeof(float));
  }

  TensorView view() const { return TensorView(buffer_.data, DType::kF32, {rows_, cols_}); }
  TensorView vector() const { return TensorView(buffer_.data, DType::kF32, {rows_ * cols_}); }
  std::vector<float> values() const {
    std::vector<float> out(static_cast<size_t>(rows_ * cols_));
    backend_->read_back(buffer_.data, out.data(), out.size() * sizeof(float));
    return out;
  }

 private:
  Backend* backend_;
  int64_t rows_, cols_;
  Backend::Buffer buffer_;
};

/// Elements as a checkpoint holds them, at an address that is aligned to nothing.
class StoredMatrix {
 public:
  /// `values` are [n][k]; they are stored as `dtype`, transposed if asked, with `gap` elements
  /// between rows.
  StoredMatrix(const std::vector<float>& values, int64_t n, int64_t k, DType dtype,
               bool transposed = false, int64_t gap = 0);
  WeightPart part() const { return part_; }

 private:
  std::vector<unsigned char> bytes_;
  WeightPart part_;
};

inline StoredMatrix::StoredMatrix(const std::vector<float>& values, int64_t n, int64_t k,
                                  DType dtype, bool transposed, int64_t gap) {
  const int64_t stride = (transposed ? n : k) + gap;
  const size_t size = dtype_size(dtype);
  // Gaps are NaN in every dtype: a read beyond a row shows.
  bytes_.assign(1 + static_cast<size_t>((transposed ? k : n) * stride) * size, 0xff);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < k; ++j) {
      const float value = values[static_cast<size_t>(i * k + j)];
      const auto at = static_cast<size_t>(transposed ? j * stride + i : i * stride + j);
      unsigned char* to = bytes_.data() + 1 + at * size;
      const double wide = static_cast<double>(value);
      const uint16_t half = dtype == DType::kBF16 ? f32_to_bf16(value) : f32_to_f16(value);
      if (dtype == DType::kF32) {
        std::memcpy(to, &value, size);
      } else if (dtype == DType::kF64) {
        std::memcpy(to, &wide, size);
      } else {
        std::memcpy(to, &half, size);
      }
    }
  }
  part_ = {bytes_.data() + 1, dtype, n, k, transposed, stride};
}

}  // namespace headrace::parity
