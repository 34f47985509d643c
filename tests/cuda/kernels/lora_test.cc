// lora() in the emulation, against sums in double.

#include "cuda/kernels/rows/lora.h"

#include <cmath>

#include "device_data.h"

namespace headrace::cuda {
namespace {

class Lora : public KernelTest {
 protected:
  Random random_{61};
};

struct Part {
  int32_t rank, cols, column;
  float scale;
};

// Rows 3 and 0 use an adapter of two parts, row 4 one of a large rank; the others none.
TEST_P(Lora, AddsEachRowsOwnAdapter) {
  SCOPED_TRACE(random_.trace());
  constexpr int64_t kRows = 5, kIn = 200, kOut = 150;
  const Part parts[] = {{8, 40, 0, 0.5f}, {3, 100, 50, 2.0f}, {530, 130, 7, 0.125f}};
  for (const DType dtype : kDTypes) {
    for (const DType storage : kDTypes) {
      const auto x = random_.uniforms(dtype, kRows * kIn);
      const auto before = random_.uniforms(dtype, kRows * kOut);
      const DeviceMatrix in(dtype, kRows, kIn, x, 5), out(dtype, kRows, kOut, before, 1);
      std::vector<DeviceMatrix> a, b;
      std::vector<LoraPartArgs> args;
      int32_t scratch_column = 0;
      for (const Part& part : parts) {
        a.emplace_back(storage, part.rank, kIn, random_.uniforms(storage, part.rank * kIn));
        b.emplace_back(storage, part.cols, part.rank,
                       random_.uniforms(storage, int64_t{part.cols} * part.rank));
        args.push_back({a.back().data(), b.back().data(), part.rank, part.cols, part.column,
                        scratch_column, part.scale});
        scratch_column = (scratch_column + part.rank + 15) / 16 * 16;
      }
      args[2].scratch_column = 0;
      const LoraRowArgs rows[] = {{3, 0, 2}, {0, 0, 2}, {4, 2, 1}};
      const DeviceArray<LoraPartArgs> device_args(args);
      const DeviceArray<LoraRowArgs> device_rows{std::span<const LoraRowArgs>(rows)};
      const DeviceMatrix scratch(DType::kF32, 3, 544);
      lora({.dtype = dtype,
            .storage = storage,
            .x = in.matrix(),
            .parts = device_args.data(),
            .rows = device_rows.data(),
            .num_rows = 3,
            .max_parts = 2,
            .max_rank = 530,
            .max_cols = 130,
            .scratch = scratch.matrix(),
            .out = out.matrix()},
           nullptr);

      std::vector<double> want(before.begin(), before.end()), bounds(before.size(), 0.0);
      for (const LoraRowArgs& row : rows) {
        for (int32_t p = row.first_part; p < row.first_part + row.num_parts; ++p) {
          const Part& part = parts[p];
          for (int32_t j = 0; j < part.cols; ++j) {
            double sum = 0.0, size = 0.0;
            for (int32_t r = 0; r < part.rank; ++r) {
              double inner = 0.0, inner_size = 0.0;
              for (int64_t i = 0; i < kIn; ++i) {
                const double term =
                    double(x[size_t(row.row * kIn + i)]) * double(a[size_t(p)].at(r, i));
                inner += term;
                inner_size += std::abs(term);
              }
              sum += inner * double(b[size_t(p)].at(j, r));
              size += inner_size * std::abs(double(b[size_t(p)].at(j, r)));
            }
            const auto at = static_cast<size_t>(row.row * kOut + part.column + j);
            want[at] += double(part.scale) * sum;
            // Both chains of float32 sums, and the rounding of each result.
            bounds[at] += double(part.scale) * size * (kIn / 32 + 5 + part.rank + 4) * 0x1p-24 +
                          (std::abs(want[at]) + 1) * roundoff(dtype);
          }
        }
      }
      for (size_t i = 0; i < want.size(); ++i) {
        const auto row = static_cast<int64_t>(i) / kOut, col = static_cast<int64_t>(i) % kOut;
        ASSERT_NEAR(out.at(row, col), want[i], bounds[i])
            << dtype_name(dtype) << " " << dtype_name(storage) << " " << row << " " << col;
      }
    }
  }
}

HEADRACE_KERNEL_TESTS(Lora);

}  // namespace
}  // namespace headrace::cuda
