#pragma once

#include <memory>

#include "backend/backend.h"
#include "engine/step_runner.h"
#include "model/decoder.h"

namespace headrace::internal {

/// A Decoder with its cache, on a backend that it shares with adapters.
class DecoderRunner final : public StepRunner {
 public:
  /// `cache` and `decoder` live on `backend`. `max_logit_rows` is the decoder's.
  DecoderRunner(std::shared_ptr<Backend> backend, std::unique_ptr<Decoder> decoder,
                std::unique_ptr<KvCache> cache, int32_t max_logit_rows);

  void enter_thread() override { backend_->enter_thread(); }
  TensorView forward(const StepBatch& batch) override;
  TensorView logits(std::span<const int32_t> rows) override;
  void reserve(const StepBatch& batch) override;
  int32_t max_logit_rows() const override { return max_logit_rows_; }
  void sample(TensorView logits, std::span<const SampleRow> rows,
              std::span<SampleResult> results) override;
  size_t memory_bytes() const override;
  size_t memory_pool_bytes() const override;
  size_t mapped_bytes() const override { return decoder_->adopted_bytes(); }

 private:
  std::shared_ptr<Backend> backend_;  // first: it must outlive what lives on it
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<KvCache> cache_;
  int32_t max_logit_rows_;
};

}  // namespace headrace::internal
