#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "backend/contract/backend.h"
#include "engine/guess/mtp_drafter.h"
#include "engine/load/weights.h"
#include "engine/loop/step_runner.h"

namespace headrace::internal {

/// A Decoder with its cache, on a backend that it shares with adapters.
class DecoderRunner final : public StepRunner, public MtpRunner {
 public:
  /// The weights live on `backend`. `options` are the decoder's. Needs a cache to run.
  DecoderRunner(std::shared_ptr<Backend> backend, LoadedWeights weights,
                const DecoderOptions& options);

  /// Instead of the cache that it has.
  void make_cache(const KvCacheSpec& spec, int32_t num_blocks, int32_t num_host_blocks = 0);
  const Decoder& decoder() const noexcept { return *weights_.decoder; }
  /// The model's tower, once; null: it has none. Lives as long as what it returns, with the
  /// backend.
  std::shared_ptr<VisionTower> take_tower();
  const std::string& packed_file() const noexcept { return weights_.packed_file; }

  /// The weights' packed file is written from then on, if it is to be.
  void enter_thread() override;
  void copy_blocks(std::span<const BlockCopy> copies) override;
  TensorView forward(const StepBatch& batch, std::span<const LoraAdapter* const> adapters) override;
  TensorView logits(std::span<const int32_t> rows) override;
  /// For a model with an MTP block.
  TensorView guess(const MtpStep& step) override;
  void keep(std::span<const int32_t> rows, int64_t first) override;
  TensorView hidden(std::span<const int32_t> rows) override;
  void read(const TensorView& rows, std::span<float> out) override;
  MediaRows allocate_rows(int64_t rows, int32_t count) override;
  void upload_rows(std::span<const float> values, const TensorView& rows) override;
  void reserve(const StepBatch& batch) override;
  int32_t max_logit_rows() const override { return max_logit_rows_; }
  void sample(TensorView logits, std::span<const SampleRow> rows,
              std::span<SampleResult> results) override;
  bool runs_ahead() const override { return backend_->runs_ahead(); }
  int32_t most_logprobs_ahead() const override { return backend_->most_logprobs_ahead(); }
  void begin_sample(TensorView logits, std::span<const SampleRow> rows) override;
  void end_sample(std::span<SampleResult> results) override;
  size_t memory_bytes() const override;
  size_t memory_pool_bytes() const override;
  bool lost() const noexcept override { return backend_->lost(); }
  size_t mapped_bytes() const override { return weights_.decoder->adopted_bytes(); }

 private:
  std::shared_ptr<Backend> backend_;  // first: it must outlive what lives on it
  LoadedWeights weights_;
  std::unique_ptr<KvCache> cache_;
  std::vector<std::byte> staging_;  ///< of read(): rows in their own dtype
  int32_t max_logit_rows_;
  DType activation_;
};

}  // namespace headrace::internal
