#pragma once

// Sequences in a paged cache, steps of attention() over them, and what exact softmax gives.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "cuda/kernels/attention/attention.h"
#include "kv_array.h"

namespace headrace::cuda::attention_cases {

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
  std::vector<PositionRange> both_ways = {};  // SeqSlice's
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
      seqs.back().both_ways = c.both_ways;
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
  std::vector<double> exact(const Chunk& chunk, int32_t position) const {
    const int32_t s = chunk.sequence, num_keys = chunk.start + chunk.rows;
    std::vector<double> out, bounds;
    const auto d = static_cast<size_t>(shape_.head_dim);
    for (int32_t h = 0; h < shape_.heads; ++h) {
      const int32_t kv_head = h / (shape_.heads / shape_.kv_heads);
      const float* query = &q_[q(s, position) + size_t(h) * d];
      std::vector<double> scores;
      double max = -INFINITY, total = 0.0;
      const int32_t first = first_key(position, shape_.window);
      const int32_t ahead = shape_.window > 0 ? position + shape_.window : num_keys;
      int32_t end = shape_.causal ? position + 1 : std::min(num_keys, ahead);
      for (const PositionRange& range : chunk.both_ways) {
        if (range.first <= position && position < range.end) end = range.end;
      }
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

}  // namespace headrace::cuda::attention_cases
