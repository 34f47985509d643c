// attention() in the emulation, against softmax in double, and against itself under other schedules
// of the same tokens.

#include "cuda/kernels/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "attention_case.h"
#include "base/check.h"

namespace headrace::cuda {
namespace {

using attention_cases::AttentionCase;
using attention_cases::Chunk;
using attention_cases::Shape;

class Attention : public KernelTest {
 protected:
  void expect_close(const AttentionCase& c, const std::vector<Chunk>& chunks) {
    const auto got = c.run(chunks);
    const auto width = static_cast<size_t>(c.width());
    size_t row = 0;
    for (const Chunk& chunk : chunks) {
      for (int32_t i = 0; i < chunk.rows; ++i, ++row) {
        const auto want = c.exact(chunk, chunk.start + i);
        for (size_t j = 0; j < width; ++j) {
          ASSERT_NEAR(got[row * width + j], want[j], want[width + j])
              << "sequence " << chunk.sequence << " position " << chunk.start + i << " column "
              << j;
        }
      }
    }
  }

  Random random_{51};
};

// Decodes (one split, several), a few rows, and chunks, in one step.
TEST_P(Attention, MixedStepsMatchExactSoftmax) {
  SCOPED_TRACE(random_.trace());
  const std::vector<Chunk> chunks = {{0, 330, 1}, {1, 5, 1}, {2, 0, 40}, {3, 250, 3}, {1, 240, 30}};
  const Shape shapes[] = {
      {.head_dim = 64},
      {.dtype = DType::kF16, .heads = 2, .head_dim = 80, .cache = DType::kF16},
      {.heads = 3, .kv_heads = 1, .head_dim = 96, .window = 70},
      {.heads = 1, .kv_heads = 1, .head_dim = 128, .block_size = 64},
      {.dtype = DType::kF32, .heads = 3, .kv_heads = 1, .head_dim = 48, .cache = DType::kF32},
      {.dtype = DType::kBF16, .head_dim = 32, .window = 300, .cache = DType::kF32},
      {.heads = 2, .kv_heads = 1, .head_dim = 128, .causal = false},
      {.heads = 2, .kv_heads = 1, .head_dim = 64, .window = 20, .causal = false},
      {.dtype = DType::kF32,
       .heads = 2,
       .kv_heads = 1,
       .head_dim = 16,
       .cache = DType::kF32,
       .causal = false},
      {.dtype = DType::kF32,
       .heads = 2,
       .kv_heads = 1,
       .head_dim = 32,
       .window = 90,
       .cache = DType::kF32,
       .causal = false},
  };
  for (const Shape& shape : shapes) {
    AttentionCase c(shape, 4, 331, random_);
    c.write(331);
    expect_close(c, chunks);
  }
}

// Codes with their scales: by tensor cores, whatever the head, and without.
TEST_P(Attention, CodesMatchExactSoftmax) {
  SCOPED_TRACE(random_.trace());
  const std::vector<Chunk> chunks = {{0, 330, 1}, {1, 5, 1}, {2, 0, 40}, {1, 240, 30}};
  const Shape shapes[] = {
      {.head_dim = 64, .cache = DType::kI8},
      {.dtype = DType::kF16, .heads = 2, .head_dim = 80, .cache = DType::kI8},
      {.heads = 3, .kv_heads = 1, .head_dim = 96, .window = 70, .cache = DType::kI8},
      {.heads = 1, .kv_heads = 1, .head_dim = 256, .cache = DType::kI8},
      {.heads = 2, .kv_heads = 1, .head_dim = 128, .cache = DType::kF8E4M3, .causal = false},
      {.heads = 2,
       .kv_heads = 1,
       .head_dim = 64,
       .window = 20,
       .cache = DType::kI8,
       .causal = false},
      {.dtype = DType::kF16, .heads = 1, .kv_heads = 1, .head_dim = 80, .cache = DType::kF8E4M3},
      {.heads = 17, .kv_heads = 1, .head_dim = 64, .cache = DType::kF8E4M3},
      {.heads = 2, .kv_heads = 2, .head_dim = 64, .block_size = 64, .cache = DType::kU4},
      {.dtype = DType::kF16, .heads = 1, .kv_heads = 1, .head_dim = 80, .cache = DType::kU4},
      {.heads = 1, .kv_heads = 1, .head_dim = 96, .window = 70, .cache = DType::kU4},
      {.heads = 4, .kv_heads = 1, .head_dim = 128, .cache = DType::kU4},
      {.heads = 1, .kv_heads = 1, .head_dim = 256, .cache = DType::kU4},
      {.dtype = DType::kF32, .heads = 2, .kv_heads = 1, .head_dim = 48, .cache = DType::kI8},
      {.heads = 2, .kv_heads = 1, .head_dim = 32, .cache = DType::kF8E4M3},
      {.dtype = DType::kF32, .heads = 2, .kv_heads = 1, .head_dim = 80, .cache = DType::kU4},
  };
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(str_cat(dtype_name(shape.cache), " x ", shape.head_dim));
    AttentionCase c(shape, 3, 331, random_);
    c.write(331);
    expect_close(c, chunks);
  }
}

// Half of the scores are near the cap or above. Kinds of kernels: mma.sync, wgmma (sinks alone),
// codes, plain.
TEST_P(Attention, CapsAndSinksMatchExactSoftmax) {
  SCOPED_TRACE(random_.trace());
  const Shape shapes[] = {
      {.soft_cap = 1.0f, .sinks = true},
      {.heads = 3, .kv_heads = 1, .head_dim = 128, .window = 70, .sinks = true},
      {.heads = 2, .kv_heads = 1, .head_dim = 256, .soft_cap = 1.0f},
      {.heads = 2, .kv_heads = 1, .head_dim = 256, .block_size = 32, .sinks = true},
      {.heads = 17,
       .kv_heads = 1,
       .head_dim = 80,
       .causal = false,
       .soft_cap = 1.0f,
       .sinks = true},
      {.heads = 4, .kv_heads = 1, .cache = DType::kI8, .soft_cap = 1.0f, .sinks = true},
      {.heads = 2, .kv_heads = 1, .head_dim = 256, .cache = DType::kF8E4M3, .soft_cap = 1.0f},
      {.heads = 2,
       .kv_heads = 1,
       .head_dim = 96,
       .window = 70,
       .cache = DType::kU4,
       .soft_cap = 1.0f,
       .sinks = true},
      {.heads = 2, .kv_heads = 1, .head_dim = 48, .soft_cap = 1.0f, .sinks = true},
      {.dtype = DType::kF32,
       .heads = 2,
       .kv_heads = 1,
       .head_dim = 16,
       .cache = DType::kF32,
       .soft_cap = 1.0f,
       .sinks = true},
  };
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(str_cat(dtype_name(shape.cache), " x ", shape.head_dim, " cap ", shape.soft_cap));
    AttentionCase c(shape, 3, 301, random_);
    c.write(301);
    expect_close(c, {{0, 300, 1}, {1, 5, 1}, {2, 0, 20}, {1, 240, 30}});
  }
}

// What no tensor core kernel takes: up to 512 numbers.
TEST_P(Attention, HugeHeadsMatchExactSoftmax) {
  SCOPED_TRACE(random_.trace());
  const Shape shapes[] = {
      {.heads = 2, .kv_heads = 1, .head_dim = 512},
      {.heads = 1, .kv_heads = 1, .head_dim = 512, .cache = DType::kI8, .sinks = true},
      {.dtype = DType::kF16, .heads = 1, .kv_heads = 1, .head_dim = 272, .cache = DType::kU4},
      {.dtype = DType::kF32, .heads = 1, .kv_heads = 1, .head_dim = 336, .cache = DType::kF32},
  };
  for (const Shape& shape : shapes) {
    AttentionCase c(shape, 2, 270, random_);
    c.write(270);
    expect_close(c, {{0, 269, 1}, {1, 250, 20}});
  }
}

// Two widths of the kernel, with columns that no warp has, and what plain kernels take.
TEST_P(Attention, LatentRowsMatchExactSoftmax) {
  SCOPED_TRACE(random_.trace());
  const Shape shapes[] = {
      {.heads = 16, .kv_heads = 1, .head_dim = 576, .latent = true},
      {.heads = 20, .kv_heads = 1, .head_dim = 336, .multiprocessors = 2, .latent = true},
      {.dtype = DType::kF16,
       .heads = 3,
       .kv_heads = 1,
       .head_dim = 272,
       .block_size = 48,
       .cache = DType::kF16,
       .soft_cap = 1.0f,
       .sinks = true,
       .latent = true},
      {.heads = 2, .kv_heads = 1, .head_dim = 48, .window = 70, .latent = true},
      {.heads = 1, .kv_heads = 1, .head_dim = 640, .latent = true},
      {.dtype = DType::kF32,
       .heads = 2,
       .kv_heads = 1,
       .head_dim = 48,
       .cache = DType::kF32,
       .latent = true},
  };
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(shape.head_dim);
    AttentionCase c(shape, 3, 270, random_);
    c.write(270);
    expect_close(c, {{0, 269, 1}, {2, 5, 1}, {1, 250, 6}});
  }
}

TEST_P(Attention, LargeHeadsAndGroups) {
  SCOPED_TRACE(random_.trace());
  const Shape shapes[] = {{.heads = 2, .kv_heads = 1, .head_dim = 256},
                          {.heads = 16, .kv_heads = 1, .head_dim = 64},
                          {.heads = 17, .kv_heads = 1, .head_dim = 64}};
  for (const Shape& shape : shapes) {
    AttentionCase c(shape, 2, 270, random_);
    c.write(270);
    expect_close(c, {{0, 269, 1}, {1, 250, 20}});
  }
}

// Chunks that begin and end anywhere, beside what other kernels do; blocks smaller and larger than
// a tile of keys; more pieces than blocks of the grid, and fewer.
TEST_P(Attention, LongChunksMatchExactSoftmax) {
  SCOPED_TRACE(random_.trace());
  const Shape shapes[] = {
      {.heads = 2, .kv_heads = 2, .multiprocessors = 3},
      {
          .dtype = DType::kF16,
          .heads = 3,
          .kv_heads = 1,
          .head_dim = 128,
          .window = 70,
          .block_size = 8,
          .cache = DType::kF16,
      },
      {.heads = 1, .kv_heads = 1, .head_dim = 128, .block_size = 256},
      {.heads = 2, .kv_heads = 1, .head_dim = 256, .block_size = 32},
      {.heads = 16, .kv_heads = 1, .window = 1, .multiprocessors = 100},
      {.heads = 17, .kv_heads = 1, .block_size = 64},
      {.heads = 2, .kv_heads = 1, .causal = false},
      {.heads = 2, .kv_heads = 1, .window = 20, .causal = false},
      {.heads = 2, .kv_heads = 1, .head_dim = 128, .window = 100, .causal = false},
  };
  for (const Shape& shape : shapes) {
    AttentionCase c(shape, 4, 331, random_);
    c.write(331);
    for (const bool wgmma : {true, false}) {
      c.use_wgmma(wgmma);
      expect_close(c, {{0, 330, 1}, {2, 0, 40}, {3, 101, 230}, {1, 5, 17}});
    }
  }
}

// Pictures shorter and longer than the windows, in a chunk that begins and ends within text; one
// alone, few rows of one whose other keys are there, and a decode.
TEST_P(Attention, PicturesMatchExactSoftmax) {
  SCOPED_TRACE(random_.trace());
  const Shape shapes[] = {
      {.heads = 2, .kv_heads = 1},
      {.heads = 4, .kv_heads = 1, .head_dim = 128, .window = 50, .multiprocessors = 3},
      {.heads = 1, .kv_heads = 1, .head_dim = 256, .window = 50, .block_size = 32},
      {.heads = 2, .kv_heads = 1, .window = 50, .cache = DType::kI8},
      {.dtype = DType::kF32, .heads = 2, .kv_heads = 1, .head_dim = 16, .cache = DType::kF32},
  };
  for (const Shape& shape : shapes) {
    AttentionCase c(shape, 4, 420, random_);
    c.write(400);
    const std::vector<Chunk> chunks = {{0, 100, 300, {{110, 130}, {140, 390}}},
                                       {1, 7, 60, {{7, 67}}},
                                       {2, 30, 3, {{10, 300}}},
                                       {3, 350, 1}};
    expect_close(c, chunks);
    if (HasFatalFailure()) return;
    const auto width = static_cast<ptrdiff_t>(c.width());
    const auto all = c.run(chunks);
    const auto rows = c.run({{2, 30, 3, {{10, 300}}}, {0, 180, 220, {{140, 390}}}});
    ASSERT_TRUE(std::equal(all.begin() + 360 * width, all.begin() + 363 * width, rows.begin()));
    ASSERT_TRUE(
        std::equal(all.begin() + 80 * width, all.begin() + 300 * width, rows.begin() + 3 * width));
  }
}

// A row's bits: from a chunk, from a decode, from chunks of other sizes and other company; with
// wgmma and without. Later positions hold NaN when it is a decode.
TEST_P(Attention, ChunkingDoesNotChangeBits) {
  SCOPED_TRACE(random_.trace());
  const Shape shapes[] = {
      {.heads = 2, .kv_heads = 1},
      {.heads = 4, .kv_heads = 1, .head_dim = 80, .window = 100},
      {.heads = 2, .kv_heads = 1, .head_dim = 96},
      {.dtype = DType::kF16, .heads = 4, .kv_heads = 1, .head_dim = 128, .cache = DType::kF16},
      {.heads = 2, .kv_heads = 1, .head_dim = 128, .window = 300, .block_size = 64},
      {.heads = 1, .kv_heads = 1, .head_dim = 256, .block_size = 32},
      {.heads = 1, .kv_heads = 1, .block_size = 24},
      {.dtype = DType::kF32, .heads = 2, .kv_heads = 1, .head_dim = 16, .cache = DType::kF32},
      {.heads = 2, .kv_heads = 1, .soft_cap = 1.0f, .sinks = true},
      {.heads = 2, .kv_heads = 1, .window = 100, .sinks = true},
      {.heads = 1, .kv_heads = 1, .head_dim = 256, .block_size = 32, .sinks = true},
      {.heads = 2, .kv_heads = 1, .head_dim = 48, .soft_cap = 1.0f, .sinks = true},
      {.heads = 2, .kv_heads = 1, .head_dim = 48, .multiprocessors = 3, .latent = true},
      {.heads = 1, .kv_heads = 1, .head_dim = 576, .latent = true},
  };
  for (const Shape& shape : shapes) {
    AttentionCase c(shape, 2, 600, random_);
    const auto width = static_cast<ptrdiff_t>(c.width());
    c.write(551);
    const auto row = c.run({{0, 550, 1}});
    c.write(560);
    const auto pair = c.run({{1, 17, 1}, {0, 548, 3}});
    ASSERT_TRUE(std::equal(row.begin(), row.end(), pair.begin() + 3 * width));
    const auto chunk = c.run({{1, 40, 50}, {0, 500, 60}});
    ASSERT_TRUE(std::equal(row.begin(), row.end(), chunk.begin() + 100 * width));
    const auto whole = c.run({{0, 1, 559}});
    ASSERT_TRUE(std::equal(row.begin(), row.end(), whole.begin() + 549 * width));
    ASSERT_EQ(c.run({{0, 550, 1}}, 0), row);
    c.use_wgmma(false);
    ASSERT_EQ(c.run({{0, 550, 1}}, 0), row);
    ASSERT_EQ(c.run({{0, 1, 559}}), whole);
  }
}

TEST_P(Attention, ChunkingDoesNotChangeBitsOfCodes) {
  SCOPED_TRACE(random_.trace());
  const Shape shapes[] = {
      {.heads = 4, .kv_heads = 1, .head_dim = 128, .cache = DType::kI8},
      {.dtype = DType::kF16, .heads = 2, .kv_heads = 1, .window = 200, .cache = DType::kF8E4M3},
      {.heads = 2, .kv_heads = 1, .head_dim = 80, .block_size = 24, .cache = DType::kU4},
      {.heads = 1, .kv_heads = 1, .head_dim = 256, .cache = DType::kF8E4M3},
      {.heads = 2, .kv_heads = 1, .cache = DType::kI8, .soft_cap = 1.0f, .sinks = true},
  };
  for (const Shape& shape : shapes) {
    AttentionCase c(shape, 1, 300, random_);
    const auto width = static_cast<ptrdiff_t>(c.width());
    c.write(281);
    const auto row = c.run({{0, 280, 1}});
    c.write(290);
    const auto chunk = c.run({{0, 230, 60}});
    ASSERT_TRUE(std::equal(row.begin(), row.end(), chunk.begin() + 50 * width));
    const auto few = c.run({{0, 278, 3}});
    ASSERT_TRUE(std::equal(row.begin(), row.end(), few.begin() + 2 * width));
    ASSERT_EQ(c.run({{0, 280, 1}}, 0), row);
  }
}

// A sequence's last block was another's: whatever it left there, zero times it isn't in the sum.
TEST_P(Attention, LeftoversInBlocksDoNotChangeBits) {
  SCOPED_TRACE(random_.trace());
  const Shape shapes[] = {
      {.heads = 2, .kv_heads = 1},
      {.heads = 2, .kv_heads = 1, .window = 70},
      {.heads = 2, .kv_heads = 1, .causal = false},
      {.dtype = DType::kF32, .heads = 2, .kv_heads = 1, .head_dim = 16, .cache = DType::kF32},
      {.heads = 2, .kv_heads = 1},
      {.heads = 2, .kv_heads = 1, .head_dim = 128, .window = 70},
      {.heads = 2, .kv_heads = 1, .cache = DType::kI8},
      {.heads = 2, .kv_heads = 1, .head_dim = 128, .window = 70, .cache = DType::kF8E4M3},
      {.heads = 2, .kv_heads = 1, .cache = DType::kU4, .causal = false},
      {.heads = 1, .kv_heads = 1, .head_dim = 256, .cache = DType::kU4},
      {.dtype = DType::kF32, .heads = 2, .kv_heads = 1, .head_dim = 16, .cache = DType::kI8},
      {.heads = 2, .kv_heads = 1, .head_dim = 48, .latent = true},
  };
  for (const Shape& shape : shapes) {
    AttentionCase c(shape, 2, 290, random_);
    const std::vector<Chunk> chunks = {{0, 277, 1}, {1, 248, 30}};
    std::vector<std::vector<float>> got;
    for (const float left : {0.0f, INFINITY, -INFINITY, NAN, 3e38f}) {
      c.fill(left);
      c.write(278);
      got.push_back(c.run(chunks));
      ASSERT_EQ(got.back(), got.front()) << left;
    }
  }
}

HEADRACE_KERNEL_TESTS(Attention);

}  // namespace
}  // namespace headrace::cuda
