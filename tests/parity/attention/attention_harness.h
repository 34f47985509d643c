#pragma once

// Drives rope_kv_write and attention of one backend the way an engine does: steps of slices of
// sequences over a block table in random order. What a sequence's rows hold depends on the seed,
// the sequence and the position alone, so that two schedules of the same tokens are comparable.

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kv/kv_cache.h"
#include "parity/random.h"

namespace headrace::test {

struct AttentionShape {
  int32_t num_heads = 4;
  int32_t num_kv_heads = 2;
  int32_t head_dim = 64;
  int32_t block_size = 64;
  int32_t window = 0;
  DType dtype = DType::kF32;
  float value_scale = 1.0f;
  bool causal = true;
  float soft_cap = 0.0f;
  bool sinks = false;
};

inline std::unique_ptr<Backend> backend_of(const std::string& isa, int32_t threads = 2) {
  CpuBackendOptions options;
  options.isa = isa;
  options.num_threads = threads;
  return make_cpu_backend(options);
}

/// Available kernel sets but for the oracle and for those that share others' attention.
inline std::vector<std::string> kernel_isas() {
  std::vector<std::string> isas = available_cpu_isas();
  for (const char* other : {"reference", "avx512_vnni", "avx2_vnni"}) std::erase(isas, other);
  return isas;
}

/// Rows to run of a sequence, from the position where its last slice ended.
struct Slice {
  int32_t sequence;
  int32_t rows;
  std::vector<PositionRange> both_ways = {};  ///< SeqSlice's
};

class AttentionHarness {
 public:
  AttentionHarness(Backend& backend, const AttentionShape& shape, int32_t max_sequences,
                   int32_t max_tokens, uint32_t seed)
      : backend_(backend), shape_(shape), seed_(seed) {
    const int32_t per_sequence = max_tokens / shape.block_size + 1;
    const PagedRows rows = kv_rows(shape.num_kv_heads, shape.head_dim, shape.dtype);
    cache_ = backend.make_kv_cache(CacheLayout::uniform(2, rows, shape.block_size),
                                   per_sequence * max_sequences);
    poison();
    std::vector<int32_t> blocks(static_cast<size_t>(per_sequence * max_sequences));
    for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<int32_t>(i);
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(seed));
    for (int32_t s = 0; s < max_sequences; ++s) {
      const auto first = blocks.begin() + s * per_sequence;
      tables_.emplace_back(first, first + per_sequence);
      lengths_.push_back(0);
    }
  }

  /// Values of the row at `position`: q, k and v heads.
  std::vector<float> row_of(int32_t sequence, int32_t position) const {
    const uint64_t seed = (uint64_t{seed_} << 40) + (static_cast<uint64_t>(sequence) << 32) +
                          static_cast<uint64_t>(position);
    return parity::Random(seed).uniforms(width(), -shape_.value_scale, shape_.value_scale);
  }

  /// The sequence's next slice begins there; what is behind stays in the cache.
  void go_back(int32_t sequence, int32_t position) {
    lengths_[static_cast<size_t>(sequence)] = position;
  }

  /// Replaces what row_of gives.
  void set_row(int32_t sequence, int32_t position, std::vector<float> row) {
    special_rows_[{sequence, position}] = std::move(row);
  }

  /// One step. Without `attend` only the cache is written. Returns the outputs [rows][nq * d].
  std::vector<float> step(const std::vector<Slice>& slices, bool attend = true) {
    std::vector<SeqSlice> seqs;
    std::vector<int32_t> positions;
    std::vector<float> qkv;
    for (const Slice& slice : slices) {
      int32_t& length = lengths_[static_cast<size_t>(slice.sequence)];
      seqs.push_back({static_cast<int32_t>(positions.size()), slice.rows, length,
                      tables_[static_cast<size_t>(slice.sequence)]});
      seqs.back().both_ways = slice.both_ways;
      for (int32_t i = 0; i < slice.rows; ++i, ++length) {
        const auto special = special_rows_.find({slice.sequence, length});
        const std::vector<float> row =
            special != special_rows_.end() ? special->second : row_of(slice.sequence, length);
        positions.push_back(length);
        qkv.insert(qkv.end(), row.begin(), row.end());
      }
    }
    const std::vector<int32_t> zeros(positions.size(), 0);
    StepBatch batch{zeros, positions, positions, seqs, {}};
    batch.cache = cache_.get();
    backend_.begin_step(batch);
    const auto rows = static_cast<int64_t>(positions.size());
    const TensorView x(qkv.data(), DType::kF32, {rows, width()});
    const QkvSpec heads{shape_.num_heads, shape_.num_kv_heads, shape_.head_dim, {}, {}, 1e-6f};
    backend_.rope_kv_write(x, heads, RopeSpec{}, TensorView{}, *cache_, kLayer);
    const int64_t q_width = static_cast<int64_t>(shape_.num_heads) * shape_.head_dim;
    std::vector<float> out(attend ? static_cast<size_t>(rows * q_width) : 0, -77.0f);
    if (attend) {
      std::vector<float> sinks = sinks_of();
      AttentionSpec spec{shape_.num_heads, shape_.num_kv_heads, shape_.head_dim, scale(),
                         shape_.window,    shape_.causal,       shape_.soft_cap};
      if (shape_.sinks) spec.sinks = TensorView(sinks.data(), DType::kF32, {shape_.num_heads});
      backend_.attention(x.columns(0, q_width), spec, *cache_, kLayer,
                         TensorView(out.data(), DType::kF32, {rows, q_width}));
    }
    return out;
  }

  /// Runs a whole sequence in chunks of `chunk` rows.
  std::vector<float> run_alone(int32_t sequence, int32_t tokens, int32_t chunk) {
    std::vector<float> all;
    for (int32_t done = 0; done < tokens; done += chunk) {
      const std::vector<float> out = step({{sequence, std::min(chunk, tokens - done)}});
      all.insert(all.end(), out.begin(), out.end());
    }
    return all;
  }

  /// From far below the scores, where they count for nothing, to far above.
  std::vector<float> sinks_of() const {
    std::vector<float> out = parity::Random(seed_).uniforms(shape_.num_heads, -2.0f, 2.0f);
    out.front() = -60.0f;
    if (out.size() > 2) out[2] = 30.0f;
    return out;
  }

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)); }
  int64_t width() const {
    return static_cast<int64_t>(shape_.num_heads + 2 * shape_.num_kv_heads) * shape_.head_dim;
  }

 private:
  static constexpr int32_t kLayer = 1;

  /// Every byte 0xff is a NaN in every dtype: lanes that no token has written must not matter.
  void poison() {
    const auto* tiled = dynamic_cast<const CpuKvCache*>(cache_.get());
    if (tiled == nullptr) return;
    std::memset(
        tiled->part(0).data(), 0xff,
        backend_.kv_block_bytes(cache_->layout()) * static_cast<size_t>(cache_->num_blocks()));
  }

  Backend& backend_;
  AttentionShape shape_;
  uint32_t seed_;
  std::unique_ptr<KvCache> cache_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<int32_t> lengths_;
  std::map<std::pair<int32_t, int32_t>, std::vector<float>> special_rows_;
};

}  // namespace headrace::test
