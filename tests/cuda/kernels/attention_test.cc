// attention() in the emulation, against softmax in double, and against itself under other schedules
// of the same tokens.

#include "cuda/kernels/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kv_array.h"

namespace headrace::cuda {
namespace {

struct Shape {
  DType dtype = DType::kBF16;
  int32_t heads = 4, kv_heads = 2, head_dim = 64, window = 0, block_size = 16;
  DType cache = DType::kBF16;
  bool wgmma = true;  // for long pieces, on a device that has it
  int32_t multiprocessors = 1;
  bool causal = true;
  float soft_cap = 0.0f;
  bool sinks = false;
  bool latent = false;
};

struct Chunk {
  int32_t sequence, start, rows;
};

/// Sequences whose tokens have all been written to the cache; NaN wherever no token is.
class AttentionCase {
 public:
  AttentionCase(const Shape& shape, int32_t sequences, int32_t tokens, Random& random)
      : shape_(shape),
        tokens_(tokens),
        layout_{shape.kv_heads, shape.block_size, shape.head_dim,
                2 * shape.kv_heads * shape.block_size + 16,  // with other layers' between
                3 * shape.kv_heads * shape.block_size},
        blocks_((tokens + shape.block_size - 1) / shape.block_size),
        tables_(static_cast<size_t>(sequences * blocks_)),
        keys_(shape.cache, layout_, sequences * blocks_),
        values_(shape.cache, layout_, sequences * blocks_) {
    for (size_t i = 0; i < tables_.size(); ++i) tables_[i] = static_cast<int32_t>(i);
    std::shuffle(tables_.begin(), tables_.end(), std::mt19937(7));
    const int64_t count = int64_t{sequences} * tokens;
    q_ = random.uniforms(shape.dtype, count * shape.heads * shape.head_dim, -2.0f, 2.0f);
    const DType numbers = kv_has_scales(shape.cache) ? DType::kF32 : shape.cache;
    written_k_ = random.uniforms(numbers, count * shape.kv_heads * shape.head_dim);
    written_v_ = random.uniforms(numbers, count * shape.kv_heads * shape.head_dim);
    k_ = KvArray::round(shape.cache, written_k_, shape.head_dim);
    v_ = shape.latent ? k_ : KvArray::round(shape.cache, written_v_, shape.head_dim);
    // From one that counts for nothing to one that leaves little to the keys.
    sinks_ = random.uniforms(DType::kF32, shape.heads, -2.0f, 4.0f);
    sinks_.front() = -40.0f;
    sinks_.back() = 6.0f;
  }

  void use_wgmma(bool use) { shape_.wgmma = use; }

  /// What blocks hold that other sequences have used.
  void fill(float value) {
    keys_.fill(value);
    values_.fill(value);
  }

  /// Writes what positions [0, end) of the sequences hold.
  void write(int32_t end) {
    for (int32_t s = 0; s * blocks_ < static_cast<int32_t>(tables_.size()); ++s) {
      for (int32_t p = 0; p < end; ++p) {
        for (int32_t h = 0; h < shape_.kv_heads; ++h) {
          const int64_t slot =
              int64_t{table(s)[p / shape_.block_size]} * shape_.block_size + p % shape_.block_size;
          keys_.write(slot, h, &written_k_[kv(s, p, h)]);
          values_.write(slot, h, &written_v_[kv(s, p, h)]);
        }
      }
    }
  }

  /// One step; rows in order of the chunks.
  std::vector<float> run(const std::vector<Chunk>& chunks, int64_t max_partials = 1 << 20) const {
    std::vector<SeqSlice> seqs;
    std::vector<int32_t> tables;
    std::vector<float> rows;
    int32_t first = 0;
    for (const Chunk& c : chunks) {
      seqs.push_back({first, c.rows, c.start, {}});
      first += c.rows;
      tables.insert(tables.end(), table(c.sequence), table(c.sequence) + blocks_);
      const auto from = q_.begin() + static_cast<ptrdiff_t>(q(c.sequence, c.start));
      rows.insert(rows.end(), from, from + c.rows * width());
    }
    const bool wgmma = shape_.wgmma && device_has_wgmma();
    const headrace::cuda::AttentionShape shape{
        shape_.heads,
        shape_.kv_heads,
        shape_.head_dim,
        shape_.window,
        attention_long_rows({shape_.dtype, shape_.cache, shape_.head_dim, shape_.block_size,
                             scale(), shape_.soft_cap, shape_.latent},
                            wgmma),
        shape_.causal};
    AttentionPlan plan;
    plan_attention(seqs, shape, max_partials, &plan);
    const auto count = [](const auto& list) { return static_cast<int32_t>(list.size()); };
    const DeviceArray<int32_t> counts = {count(plan.short_items), count(plan.long_items)};
    const DeviceArray<AttentionItem> short_items(plan.short_items), long_items(plan.long_items);
    const DeviceArray<int32_t> block_tables(tables);
    const int32_t* number = counts.data();
    // q as columns of a wider matrix.
    const DeviceMatrix in(shape_.dtype, first, width(), rows, 16);
    const DeviceMatrix out(shape_.dtype, first, width());
    const DeviceArray<float> partials(attention_partial_bytes(plan.num_partials, shape) /
                                      sizeof(float));
    const auto sequences = static_cast<int64_t>(chunks.size());
    const std::vector<int32_t> zeros(attention_counter_bytes(sequences, shape) / sizeof(int32_t));
    const DeviceArray<int32_t> counters(zeros);
    const DeviceArray<float> sinks(sinks_);
    attention({.dtype = shape_.dtype,
               .cache_dtype = shape_.cache,
               .shape = shape,
               .scale = scale(),
               .soft_cap = shape_.soft_cap,
               .sinks = shape_.sinks ? sinks.data() : nullptr,
               .q = in.matrix(),
               .out = out.matrix(),
               .layout = layout_,
               .latent = shape_.latent,
               .keys = keys_.data(),
               .values = shape_.latent ? keys_.data() : values_.data(),
               .key_scales = keys_.scales(),
               .value_scales = values_.scales(),
               .num_blocks = static_cast<int64_t>(tables_.size()),
               .block_tables = block_tables.data(),
               .table_stride = blocks_,
               .short_items = {short_items.data(), number, number[0]},
               .long_items = {long_items.data(), number + 1, number[1]},
               .partials = partials.data(),
               .counters = counters.data(),
               .multiprocessors = shape_.multiprocessors,
               .has_wgmma = wgmma},
              nullptr);
    EXPECT_EQ(counters.values(), zeros);  // for the next layer
    return out.values();
  }

  /// Output of one row; and, behind it, the bound of each element's error.
  std::vector<double> exact(int32_t s, int32_t position, int32_t num_keys) const {
    std::vector<double> out, bounds;
    const auto d = static_cast<size_t>(shape_.head_dim);
    for (int32_t h = 0; h < shape_.heads; ++h) {
      const int32_t kv_head = h / (shape_.heads / shape_.kv_heads);
      const float* query = &q_[q(s, position) + size_t(h) * d];
      std::vector<double> scores;
      double max = -INFINITY, total = 0.0;
      const int32_t first = first_key(position, shape_.window);
      const int32_t ahead = shape_.window > 0 ? position + shape_.window : num_keys;
      const int32_t end = shape_.causal ? position + 1 : std::min(num_keys, ahead);
      for (int32_t p = first; p < end; ++p) {
        double dot = 0.0;
        for (size_t j = 0; j < d; ++j) dot += double(query[j]) * double(k_[kv(s, p, kv_head) + j]);
        const double score = dot * double(scale()), cap = double(shape_.soft_cap);
        scores.push_back(cap > 0 ? cap * std::tanh(score / cap) : score);
        max = std::max(max, scores.back());
      }
      if (shape_.sinks) {
        const auto sink = double(sinks_[size_t(h)]);
        max = std::max(max, sink);
        total = std::exp(sink - max);
      }
      std::vector<double> sums(d, 0.0), sizes(d, 0.0);
      for (int32_t p = first; p < end; ++p) {
        const double weight = std::exp(scores[size_t(p - first)] - max);
        total += weight;
        for (size_t j = 0; j < d; ++j) {
          sums[j] += weight * double(v_[kv(s, p, kv_head) + j]);
          sizes[j] += weight * std::abs(double(v_[kv(s, p, kv_head) + j]));
        }
      }
      // A score is off by at most (d + 3) roundoffs of |q| . |k| * scale <= 2 * sqrt(d), and 6 more
      // if it is capped (a division, tanh by 2 ulp, a product), twice that relative in a weight;
      // exp2, the sums, the folds and the sink add 72 more; tensor cores see weights
      // rounded to the dtype; the output is rounded once. Of codes products see what is up to twice
      // as large as a key, and up to 2 of a value; weights are rounded to float16, whose smallest
      // step is 2^-24.
      const bool codes = kv_has_scales(shape_.cache);
      const double f32 =
          ((codes ? 12.0 : 4.0) * std::sqrt(double(d)) * (double(d) + 9) + 72) * 0x1p-24;
      const double rounding = shape_.dtype == DType::kF32 ? 0.0 : roundoff(shape_.dtype);
      const double weights = codes ? std::min(rounding, 0x1p-11) : rounding;
      const double smallest = codes ? double(end - first) * 2 * 0x1p-25 : 0.0;
      for (size_t j = 0; j < d; ++j) {
        out.push_back(sums[j] / total);
        const double size = codes ? 2.0 : sizes[j] / total;
        bounds.push_back(size * (2 * f32 + weights) + smallest + std::abs(out.back()) * rounding);
      }
    }
    out.insert(out.end(), bounds.begin(), bounds.end());
    return out;
  }

  int64_t width() const { return int64_t{shape_.heads} * shape_.head_dim; }

 private:
  const int32_t* table(int32_t s) const { return tables_.data() + s * blocks_; }
  size_t q(int32_t s, int32_t p) const { return size_t((int64_t{s} * tokens_ + p) * width()); }
  size_t kv(int32_t s, int32_t p, int32_t h) const {
    return size_t(((int64_t{s} * tokens_ + p) * shape_.kv_heads + h) * shape_.head_dim);
  }
  float scale() const { return 1.0f / std::sqrt(float(shape_.head_dim)); }

  Shape shape_;
  int32_t tokens_;
  KvLayout layout_;
  int32_t blocks_;
  std::vector<int32_t> tables_;
  KvArray keys_, values_;
  std::vector<float> q_, k_, v_;  // as the cache has them
  std::vector<float> written_k_, written_v_;
  std::vector<float> sinks_;
};

class Attention : public KernelTest {
 protected:
  void expect_close(const AttentionCase& c, const std::vector<Chunk>& chunks) {
    const auto got = c.run(chunks);
    const auto width = static_cast<size_t>(c.width());
    size_t row = 0;
    for (const Chunk& chunk : chunks) {
      for (int32_t i = 0; i < chunk.rows; ++i, ++row) {
        const auto want = c.exact(chunk.sequence, chunk.start + i, chunk.start + chunk.rows);
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
