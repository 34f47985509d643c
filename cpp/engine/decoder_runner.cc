#include "engine/decoder_runner.h"

#include <utility>
#include <vector>

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

void DecoderRunner::reserve(const StepBatch& batch) {
  backend_->reserve([&] {
    const TensorView logits = forward(batch);
    const auto count = static_cast<size_t>(logits.rows());
    std::vector<SampleRow> rows(count);
    for (size_t i = 0; i < count; ++i) rows[i].logits_row = static_cast<int32_t>(i);
    std::vector<SampleResult> results(count);
    sample(logits, rows, results);
  });
}

void DecoderRunner::sample(TensorView logits, std::span<const SampleRow> rows,
                           std::span<SampleResult> results) {
  backend_->sample(logits, decoder_->config().vocab_size, rows, results);
}

size_t DecoderRunner::memory_bytes() const { return backend_->bytes_in_use(); }

size_t DecoderRunner::memory_pool_bytes() const { return backend_->bytes_held(); }

}  // namespace headrace::internal
