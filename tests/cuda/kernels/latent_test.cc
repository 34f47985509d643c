// latent_write() in the emulation, against double; grouped_linear() of columns against linear().

#include <cmath>

#include "base/check.h"
#include "cuda/kernels/experts/grouped_linear.h"
#include "cuda/kernels/linear/linear.h"
#include "cuda/kernels/rows/latent_write.h"
#include "kv_array.h"

namespace headrace::cuda {
namespace {

class LatentKernels : public KernelTest {
 protected:
  Random random_{71};
};

struct WriteCase {
  DType dtype, cache;
  int32_t heads, rank, nope_dim, rope_dim;
  bool interleaved;
};

constexpr int32_t kRows = 3, kBlockSize = 16;

/// What an element is to be, and the size of what it is made of.
struct Wanted {
  double value, size;
};

/// Element `i` of what turns.
Wanted turned(const WriteCase& one, const float* from, const float* table, int32_t i) {
  const int32_t pairs = one.rope_dim / 2;
  const int32_t pair = one.interleaved ? i / 2 : i % pairs;
  const bool is_first = one.interleaved ? i % 2 == 0 : i < pairs;
  const double a = from[one.interleaved ? 2 * pair : pair];
  const double b = from[one.interleaved ? 2 * pair + 1 : pair + pairs];
  const double c = table[pair], s = table[pairs + pair];
  return {is_first ? a * c - b * s : b * c + a * s, std::abs(a) + std::abs(b)};
}

// Rows with zeros at their end, and without.
TEST_P(LatentKernels, WriteMatchesDouble) {
  SCOPED_TRACE(random_.trace());
  const WriteCase cases[] = {
      {DType::kF32, DType::kF32, 3, 20, 5, 6, true},
      {DType::kBF16, DType::kBF16, 5, 512, 16, 64, true},
      {DType::kF16, DType::kF16, 2, 40, 0, 8, false},
      {DType::kF32, DType::kBF16, 1, 150, 8, 4, false},
  };
  for (const WriteCase& one : cases) {
    SCOPED_TRACE(str_cat(one.rank, " + ", one.rope_dim));
    const int32_t row_dim = (one.rank + one.rope_dim + 15) / 16 * 16;
    const int32_t query_dim = one.nope_dim + one.rope_dim, kv_dim = one.rank + one.rope_dim;
    const auto q = random_.uniforms(one.dtype, int64_t{kRows} * one.heads * query_dim);
    const auto kv = random_.uniforms(one.dtype, int64_t{kRows} * kv_dim);
    const auto norm = random_.uniforms(one.dtype, one.rank),
               table = random_.uniforms(DType::kF32, int64_t{kRows} * one.rope_dim);
    const KvLayout layout{1, kBlockSize, row_dim, 2 * kBlockSize, 0};
    const KvArray cache(one.cache, layout, 2);
    const DeviceArray<int64_t> slots = {17, 3, 31};
    const DeviceArray<float> tables(table);
    const DeviceMatrix q_in(one.dtype, kRows, one.heads * query_dim, q, 3);
    const DeviceMatrix kv_in(one.dtype, kRows, kv_dim, kv, 5);
    const DeviceMatrix weight(one.dtype, 1, one.rank, norm);
    const DeviceMatrix out(one.dtype, kRows, one.heads * row_dim,
                           std::vector<float>(size_t(kRows) * one.heads * row_dim, 9.0f));
    latent_write({.dtype = one.dtype,
                  .q = q_in.matrix(),
                  .kv = kv_in.matrix(),
                  .num_heads = one.heads,
                  .rank = one.rank,
                  .nope_dim = one.nope_dim,
                  .rope_dim = one.rope_dim,
                  .norm = weight.data(),
                  .norm_eps = 1e-3f,
                  .rope_table = tables.data(),
                  .rope_stride = one.rope_dim,
                  .interleaved = one.interleaved,
                  .cache_dtype = one.cache,
                  .layout = layout,
                  .rows = cache.data(),
                  .slots = slots.data(),
                  .out = out.matrix()},
                 nullptr);
    // The mean square is off by at most 16 roundoffs (chains of 4, a tree of 7, what follows), a
    // turned number by 3 of the numbers' sizes; all are rounded once, float16 to steps of 2^-24.
    const auto expect = [](float got, const Wanted& want, DType dtype) {
      const double step = dtype == DType::kF16 ? 0x1p-25 : 0.0;
      ASSERT_NEAR(got, want.value,
                  std::abs(want.value) * roundoff(dtype) + want.size * 0x1p-20 + step);
    };
    for (int32_t row = 0; row < kRows; ++row) {
      const float* const own = &kv[size_t(row) * kv_dim];
      const float* const angles = &table[size_t(row) * one.rope_dim];
      double squares = 0.0;
      for (int32_t i = 0; i < one.rank; ++i) squares += double(own[i]) * own[i];
      const double factor = 1.0 / std::sqrt(squares / one.rank + double(1e-3f));
      for (int32_t i = 0; i < row_dim; ++i) {
        Wanted want{0.0, 0.0};
        if (i < one.rank) {
          want.value = own[i] * factor * norm[size_t(i)];
          want.size = std::abs(want.value);
        } else if (i < kv_dim) {
          want = turned(one, own + one.rank, angles, i - one.rank);
        }
        expect(cache.read(slots.values()[size_t(row)], 0, i), want, one.cache);
      }
      for (int32_t h = 0; h < one.heads; ++h) {
        const float* const query = &q[(size_t(row) * one.heads + h) * query_dim + one.nope_dim];
        for (int32_t i = 0; i < row_dim; ++i) {
          Wanted want{i < one.rank ? 9.0 : 0.0, 0.0};
          const int32_t at = i - one.rank;
          if (at >= 0 && at < one.rope_dim) want = turned(one, query, angles, at);
          expect(out.at(row, h * row_dim + i), want, one.dtype);
        }
      }
    }
  }
}

// Each kernel's tiles; steps that leave columns alone, and rows that aren't aligned.
TEST_P(LatentKernels, GroupsOfColumnsHaveTheBitsOfLinears) {
  SCOPED_TRACE(random_.trace());
  struct Size {
    int64_t groups, n, k, x_step, out_step;
  };
  const Size sizes[] = {{3, 40, 24, 32, 48}, {2, 70, 100, 101, 71}};
  for (const DType dtype : kDTypes) {
    for (const Size& size : sizes) {
      const WeightLayout layout{size.n, size.k};
      const DeviceMatrix weight(dtype, size.groups * layout.stored_rows(), layout.stride(), [&] {
        std::vector<float> numbers(size_t(size.groups * layout.elements()), 0.0f);
        for (int64_t i = 0; i < size.groups * layout.stored_rows(); ++i) {
          if (i % layout.stored_rows() >= size.n) continue;
          const auto row = random_.uniforms(dtype, size.k);
          std::copy(row.begin(), row.end(), numbers.begin() + i * layout.stride());
        }
        return numbers;
      }());
      const int64_t x_cols = (size.groups - 1) * size.x_step + size.k;
      const int64_t out_cols = (size.groups - 1) * size.out_step + size.n;
      for (const int64_t rows : {1, 9, 20, 70}) {
        SCOPED_TRACE(str_cat(dtype_name(dtype), " ", rows, " x ", size.n));
        const DeviceMatrix x(dtype, rows, x_cols, random_.uniforms(dtype, rows * x_cols), 3);
        const std::vector<float> before(size_t(rows * out_cols), 7.0f);
        const DeviceMatrix out(dtype, rows, out_cols, before, 5),
            want(dtype, rows, out_cols, before, 5);
        const auto part = [&](const DeviceMatrix& of, int64_t column, int64_t cols) {
          auto* const data = static_cast<char*>(of.data()) + size_t(column) * dtype_size(dtype);
          return Matrix{data, rows, cols, of.matrix().stride};
        };
        const int32_t tile_rows = grouped_tile_rows(dtype, false, rows, size.groups, size.groups);
        grouped_linear({.dtype = dtype,
                        .x = part(x, 0, size.k),
                        .weight = weight.data(),
                        .layout = layout,
                        .out = part(out, 0, size.n),
                        .num_tiles = size.groups * ((rows + tile_rows - 1) / tile_rows),
                        .tile_rows = tile_rows,
                        .x_step = size.x_step,
                        .out_step = size.out_step},
                       nullptr);
        for (int64_t g = 0; g < size.groups; ++g) {
          linear({.dtype = dtype,
                  .x = part(x, g * size.x_step, size.k),
                  .weight = static_cast<const char*>(weight.data()) +
                            size_t(g * layout.elements()) * dtype_size(dtype),
                  .layout = layout,
                  .out_dtype = dtype,
                  .out = part(want, g * size.out_step, size.n)},
                 nullptr);
        }
        ASSERT_EQ(out.values(), want.values());
      }
    }
  }
}

HEADRACE_KERNEL_TESTS(LatentKernels);

}  // namespace
}  // namespace headrace::cuda
