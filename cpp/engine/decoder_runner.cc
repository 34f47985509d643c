#include "engine/decoder_runner.h"

#include <utility>

namespace headrace::internal {

DecoderRunner::DecoderRunner(std::shared_ptr<Backend> backend, std::unique_ptr<Decoder> decoder,
                             std::unique_ptr<KvCache> cache, int32_t max_logit_rows)
    : backend_(std::move(backend)),
      decoder_(std::move(decoder)),
      cache_(std::move(cache)),
      max_logit_rows_(max_logit_rows) {}

TensorView DecoderRunner::forward(const StepBatch& batch) {
  return decoder_->forward(batch, *cache_);
}

TensorView DecoderRunner::logits(std::span<const int32_t> rows) { return decoder_->logits(rows); }

void DecoderRunner::sample(TensorView logits, std::span<const SampleRow> rows,
                           std::span<SampleResult> results) {
  backend_->sample(logits, decoder_->config().vocab_size, rows, results);
}

size_t DecoderRunner::memory_bytes() const { return backend_->bytes_in_use(); }

size_t DecoderRunner::memory_pool_bytes() const { return backend_->bytes_held(); }

}  // namespace headrace::internal
