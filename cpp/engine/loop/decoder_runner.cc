#include "engine/loop/decoder_runner.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace headrace::internal {

DecoderRunner::DecoderRunner(std::shared_ptr<Backend> backend, LoadedWeights weights,
                             const DecoderOptions& options)
    : backend_(std::move(backend)),
      weights_(std::move(weights)),
      max_logit_rows_(options.max_logit_rows),
      activation_(backend_->activation_dtype(options.storage)) {}

void DecoderRunner::make_cache(const KvCacheSpec& spec, int32_t num_blocks,
                               int32_t num_host_blocks) {
  cache_.reset();
  cache_ = backend_->make_kv_cache(spec, num_blocks);
  if (num_host_blocks > 0) backend_->add_host_blocks(*cache_, num_host_blocks);
}

std::shared_ptr<VisionTower> DecoderRunner::take_tower() {
  if (weights_.tower == nullptr) return nullptr;
  struct Owner {
    std::shared_ptr<Backend> backend;
    std::unique_ptr<VisionTower> tower;
  };
  auto owner = std::make_shared<Owner>(Owner{backend_, std::move(weights_.tower)});
  return {owner, owner->tower.get()};
}

// Before the thread is confined to some cores, which the writer would share.
void DecoderRunner::enter_thread() {
  if (weights_.writer != nullptr) weights_.writer->start();
  backend_->enter_thread();
}

void DecoderRunner::copy_blocks(std::span<const BlockCopy> copies) {
  backend_->copy_blocks(*cache_, copies);
}

TensorView DecoderRunner::forward(const StepBatch& batch,
                                  std::span<const LoraAdapter* const> adapters) {
  return weights_.decoder->forward(batch, adapters, *cache_);
}

TensorView DecoderRunner::logits(std::span<const int32_t> rows) {
  return weights_.decoder->logits(rows);
}

TensorView DecoderRunner::guess(const MtpStep& step) {
  return weights_.decoder->guess(step, *cache_);
}

void DecoderRunner::keep(std::span<const int32_t> rows, int64_t first) {
  weights_.decoder->keep(rows, first);
}

TensorView DecoderRunner::hidden(std::span<const int32_t> rows) {
  return weights_.decoder->hidden(rows);
}

void DecoderRunner::read(const TensorView& rows, std::span<float> out) {
  HEADRACE_CHECK(
      rows.row_stride == rows.cols() && std::cmp_equal(out.size(), rows.shape.elements()),
      out.size());
  if (rows.dtype == DType::kF32)
    return backend_->read_back(rows.data, out.data(), out.size_bytes());
  staging_.resize(out.size() * dtype_size(rows.dtype));
  backend_->read_back(rows.data, staging_.data(), staging_.size());
  const auto* const halves = reinterpret_cast<const uint16_t*>(staging_.data());
  HEADRACE_CHECK(rows.dtype == DType::kBF16 || rows.dtype == DType::kF16, dtype_name(rows.dtype));
  const auto to_float = rows.dtype == DType::kBF16 ? bf16_to_f32 : f16_to_f32;
  for (size_t i = 0; i < out.size(); ++i) out[i] = to_float(halves[i]);
}

MediaRows DecoderRunner::allocate_rows(int64_t rows, int32_t count) {
  const int64_t hidden = weights_.decoder->config().hidden_size;
  const size_t bytes = tensor_bytes(rows, hidden, activation_);
  Backend::Buffer memory = backend_->allocate(static_cast<size_t>(count) * bytes);
  MediaRows out;
  for (int32_t i = 0; i < count; ++i) {
    out.tensors.emplace_back(static_cast<char*>(memory.data) + static_cast<size_t>(i) * bytes,
                             activation_, Shape{rows, hidden});
  }
  out.owner = std::move(memory.owner);
  return out;
}

void DecoderRunner::upload_rows(std::span<const float> values, const TensorView& rows) {
  backend_->write_rows(values, rows);
}

void DecoderRunner::reserve(const StepBatch& batch) {
  backend_->reserve([&] {
    const TensorView logits = forward(batch, {});
    const auto count = static_cast<size_t>(logits.rows());
    std::vector<SampleRow> rows(count);
    for (size_t i = 0; i < count; ++i) rows[i].logits_row = static_cast<int32_t>(i);
    std::vector<SampleResult> results(count);
    sample(logits, rows, results);
  });
}

void DecoderRunner::sample(TensorView logits, std::span<const SampleRow> rows,
                           std::span<SampleResult> results) {
  backend_->sample(logits, weights_.decoder->config().vocab_size, rows, results);
}

void DecoderRunner::begin_sample(TensorView logits, std::span<const SampleRow> rows) {
  backend_->begin_sample(logits, weights_.decoder->config().vocab_size, rows);
}

void DecoderRunner::end_sample(std::span<SampleResult> results) { backend_->end_sample(results); }

size_t DecoderRunner::memory_bytes() const { return backend_->bytes_in_use(); }

size_t DecoderRunner::memory_pool_bytes() const { return backend_->bytes_held(); }

}  // namespace headrace::internal
