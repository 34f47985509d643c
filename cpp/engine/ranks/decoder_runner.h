#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "backend/contract/backend.h"
#include "engine/guess/mtp_drafter.h"
#include "engine/ranks/loaded_weights.h"
#include "engine/ranks/rank_threads.h"
#include "engine/runner/step_runner.h"
#include "model/load/load_lora_adapter.h"

namespace headrace::internal {

/// Backends that compute a model together, rank by rank, and their threads. Mostly one.
struct RankedBackends {
  std::shared_ptr<RankThreads> threads;
  std::vector<std::shared_ptr<Backend>> backends;

  Backend& first() const { return *backends.front(); }
};

/// How much a cache has room for.
struct CacheCounts {
  int32_t blocks = 0, host_blocks = 0;
  int32_t state_slots = 0, host_state_slots = 0;  ///< of a model with states
};

/// A Decoder with its cache, on a backend that it shares with adapters; or several that are ranks
/// of one model, each on a backend and a thread of its own. Then it is the first rank whose logits
/// are drawn from.
class DecoderRunner final : public StepRunner, public MtpRunner {
 public:
  /// `weights` by rank: they live on the backends. `options` are the decoder's. Needs a cache to
  /// run.
  DecoderRunner(const RankedBackends& ranks, std::vector<LoadedWeights> weights,
                const DecoderOptions& options);
  /// Nothing is under way on a device any more that uses another one's memory.
  ~DecoderRunner() override;

  /// Instead of the cache that it has.
  void make_cache(const CacheOptions& options, const CacheCounts& counts);
  int32_t num_ranks() const noexcept { return static_cast<int32_t>(ranks_.size()); }
  const Decoder& decoder(int32_t rank = 0) const noexcept {
    return *ranks_[static_cast<size_t>(rank)].weights.decoder;
  }
  /// The model's tower, once; null: it has none. Lives as long as what it returns, with the
  /// backend.
  std::shared_ptr<VisionTower> take_tower();
  const std::string& packed_file() const noexcept { return first().weights.packed_file; }
  /// Where adapters go, by rank.
  std::vector<LoraPlace> lora_places() const;

  /// The weights' packed file is written from then on, if it is to be.
  void enter_thread() override;
  void copy_blocks(std::span<const BlockCopy> copies) override;
  TensorView forward(const StepBatch& batch, std::span<const LoraAdapter* const> adapters) override;
  TensorView logits(std::span<const int32_t> rows) override;
  /// For a model with an MTP block.
  TensorView guess(const MtpStep& step) override;
  void keep(std::span<const int32_t> rows, int64_t first_kept) override;
  TensorView hidden(std::span<const int32_t> rows) override;
  TensorView read_pool_head(std::span<const float> pooled) override;
  void read(const TensorView& rows, std::span<float> out) override;
  MediaRows allocate_rows(int64_t rows, int32_t count) override;
  void upload_rows(std::span<const float> values, const TensorView& rows) override;
  void reserve(const StepBatch& batch) override;
  int32_t max_logit_rows() const override { return max_logit_rows_; }
  int32_t recorded_rows() const override { return backend().recorded_rows(); }
  void sample(TensorView logits, std::span<const SampleRow> rows,
              std::span<SampleResult> results) override;
  bool runs_ahead() const override { return backend().runs_ahead(); }
  int32_t most_logprobs_ahead() const override { return backend().most_logprobs_ahead(); }
  void begin_sample(TensorView logits, std::span<const SampleRow> rows) override;
  void end_sample(std::span<SampleResult> results) override;
  /// A rank that fails ends what the others' devices wait for, whichever step it belongs to.
  void settle() override;
  size_t memory_bytes() const override;
  size_t memory_pool_bytes() const override;
  bool lost() const noexcept override;
  size_t mapped_bytes() const override;

 private:
  struct Rank {
    std::shared_ptr<Backend> backend;  // first: it must outlive what lives on it
    LoadedWeights weights;
    std::unique_ptr<KvCache> cache;
    std::vector<const LoraAdapter*> adapters;  ///< this rank's, of the step
    std::deque<uint64_t> draws;                ///< that end_sample() of its backend waits for
  };
  /// A begin_sample(): its number, and what had failed then.
  struct Draw {
    uint64_t number, failures;
  };

  Rank& first() noexcept { return ranks_.front(); }
  const Rank& first() const noexcept { return ranks_.front(); }
  Backend& backend() const noexcept { return *first().backend; }
  /// Calls work(rank) for each, all at once; gives what the first one gives.
  template <class Work>
  TensorView compute(const Work& work);
  /// Waits with `wait` for the first rank's device, and on their threads for the others', which it
  /// may be waiting for: one of them that has failed ends the wait.
  template <class Wait>
  void wait_for_all(const Wait& wait);

  std::shared_ptr<RankThreads> threads_;
  std::vector<Rank> ranks_;
  const bool devices_wait_;  ///< for each other, and not their threads
  std::deque<Draw> draws_;   ///< of several ranks
  uint64_t num_draws_ = 0;
  std::vector<std::byte> staging_;  ///< of read(): rows in their own dtype
  int32_t max_logit_rows_;
  DType activation_;
};

}  // namespace headrace::internal
