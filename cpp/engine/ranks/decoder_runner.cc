#include "engine/ranks/decoder_runner.h"

#include "model/load/load_lora_adapter.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace headrace::internal {

DecoderRunner::DecoderRunner(const RankedBackends& ranks, std::vector<LoadedWeights> weights,
                             const DecoderOptions& options)
    : threads_(ranks.threads),
      devices_wait_(ranks.backends.size() > 1 && !ranks.first().device_info().host_memory),
      max_logit_rows_(options.max_logit_rows),
      activation_(ranks.first().activation_dtype(options.storage)) {
  HEADRACE_CHECK(weights.size() == ranks.backends.size(), weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    Rank& rank = ranks_.emplace_back();
    rank.backend = ranks.backends[i];
    rank.weights = std::move(weights[i]);
    rank.adapters.reserve(static_cast<size_t>(options.max_loras));
  }
}

template <class Work>
TensorView DecoderRunner::compute(const Work& work) {
  TensorView out;
  threads_->run([&](int32_t index) {
    const TensorView rows = work(ranks_[static_cast<size_t>(index)]);
    if (index == 0) out = rows;
  });
  return out;
}

template <class Wait>
void DecoderRunner::wait_for_all(const Wait& wait) {
  if (!devices_wait_) return wait();
  threads_->run([&](int32_t index) {
    if (index == 0) return wait();
    ranks_[static_cast<size_t>(index)].backend->read_back(nullptr, nullptr, 0);
  });
}

DecoderRunner::~DecoderRunner() {
  try {
    settle();
  } catch (...) {  // a device that has failed: nothing of it goes on
  }
}

void DecoderRunner::make_cache(const CacheOptions& options, const CacheCounts& counts) {
  threads_->run([&](int32_t index) {
    Rank& rank = ranks_[static_cast<size_t>(index)];
    rank.cache.reset();
    const CacheLayout layout = rank.weights.decoder->cache_layout(options);
    rank.cache = rank.backend->make_kv_cache(layout, counts.blocks, counts.state_slots);
    if (counts.host_blocks > 0) rank.backend->add_host_blocks(*rank.cache, counts.host_blocks);
    if (counts.host_state_slots > 0) {
      rank.backend->add_host_slots(*rank.cache, counts.host_state_slots);
    }
  });
}

std::shared_ptr<VisionTower> DecoderRunner::take_tower() {
  if (first().weights.tower == nullptr) return nullptr;
  struct Owner {
    std::shared_ptr<Backend> backend;
    std::unique_ptr<VisionTower> tower;
  };
  auto owner = std::make_shared<Owner>(Owner{first().backend, std::move(first().weights.tower)});
  return {owner, owner->tower.get()};
}

std::vector<LoraPlace> DecoderRunner::lora_places() const {
  std::vector<LoraPlace> out;
  for (const Rank& rank : ranks_) out.push_back({rank.backend, rank.weights.linears});
  return out;
}

// Before the thread is confined to some cores, which the writer would share.
void DecoderRunner::enter_thread() {
  if (first().weights.writer != nullptr) first().weights.writer->start();
  threads_->run([&](int32_t index) { ranks_[static_cast<size_t>(index)].backend->enter_thread(); });
}

void DecoderRunner::copy_blocks(std::span<const BlockCopy> copies) {
  threads_->run([&](int32_t index) {
    Rank& rank = ranks_[static_cast<size_t>(index)];
    rank.backend->copy_blocks(*rank.cache, copies);
  });
}

TensorView DecoderRunner::forward(const StepBatch& batch,
                                  std::span<const LoraAdapter* const> adapters) {
  if (num_ranks() == 1) return first().weights.decoder->forward(batch, adapters, *first().cache);
  return compute([&](Rank& rank) {
    const auto number = static_cast<size_t>(&rank - ranks_.data());
    rank.adapters.clear();
    for (const LoraAdapter* adapter : adapters) rank.adapters.push_back(&adapter->of_rank(number));
    return rank.weights.decoder->forward(batch, rank.adapters, *rank.cache);
  });
}

TensorView DecoderRunner::logits(std::span<const int32_t> rows) {
  return compute([&](Rank& rank) { return rank.weights.decoder->logits(rows); });
}

TensorView DecoderRunner::guess(const MtpStep& step) {
  return compute([&](Rank& rank) { return rank.weights.decoder->guess(step, *rank.cache); });
}

void DecoderRunner::keep(std::span<const int32_t> rows, int64_t first_kept) {
  threads_->run([&](int32_t index) {
    ranks_[static_cast<size_t>(index)].weights.decoder->keep(rows, first_kept);
  });
}

TensorView DecoderRunner::hidden(std::span<const int32_t> rows) {
  return compute([&](Rank& rank) { return rank.weights.decoder->hidden(rows); });
}

TensorView DecoderRunner::read_pool_head(std::span<const float> pooled) {
  return first().weights.decoder->read_pool_head(pooled);
}

void DecoderRunner::read(const TensorView& rows, std::span<float> out) {
  HEADRACE_CHECK((rows.row_stride == rows.cols() || rows.rows() == 1) &&
                     std::cmp_equal(out.size(), rows.shape.elements()),
                 out.size());
  if (rows.dtype == DType::kF32) {
    return wait_for_all([&] { backend().read_back(rows.data, out.data(), out.size_bytes()); });
  }
  staging_.resize(out.size() * dtype_size(rows.dtype));
  wait_for_all([&] { backend().read_back(rows.data, staging_.data(), staging_.size()); });
  const auto* const halves = reinterpret_cast<const uint16_t*>(staging_.data());
  HEADRACE_CHECK(rows.dtype == DType::kBF16 || rows.dtype == DType::kF16, dtype_name(rows.dtype));
  const auto to_float = rows.dtype == DType::kBF16 ? bf16_to_f32 : f16_to_f32;
  for (size_t i = 0; i < out.size(); ++i) out[i] = to_float(halves[i]);
}

MediaRows DecoderRunner::allocate_rows(int64_t rows, int32_t count) {
  const int64_t hidden = first().weights.decoder->config().hidden_size;
  const size_t bytes = tensor_bytes(rows, hidden, activation_);
  Backend::Buffer memory = backend().allocate(static_cast<size_t>(count) * bytes);
  MediaRows out;
  for (int32_t i = 0; i < count; ++i) {
    out.tensors.emplace_back(static_cast<char*>(memory.data) + static_cast<size_t>(i) * bytes,
                             activation_, Shape{rows, hidden});
  }
  out.owner = std::move(memory.owner);
  return out;
}

void DecoderRunner::upload_rows(std::span<const float> values, const TensorView& rows) {
  backend().write_rows(values, rows);
}

void DecoderRunner::reserve(const StepBatch& batch) {
  threads_->run([&](int32_t index) {
    Rank& rank = ranks_[static_cast<size_t>(index)];
    rank.backend->reserve([&] {
      const TensorView logits = rank.weights.decoder->forward(batch, {}, *rank.cache);
      if (index > 0) return;
      const auto count = static_cast<size_t>(logits.rows());
      std::vector<SampleRow> rows(count);
      for (size_t i = 0; i < count; ++i) rows[i].logits_row = static_cast<int32_t>(i);
      std::vector<SampleResult> results(count);
      backend().sample(logits, decoder().config().vocab_size, rows, results);
    });
  });
}

void DecoderRunner::sample(TensorView logits, std::span<const SampleRow> rows,
                           std::span<SampleResult> results) {
  wait_for_all([&] { backend().sample(logits, decoder().config().vocab_size, rows, results); });
}

// The first rank last: where another one fails, it has begun nothing that nobody collects.
void DecoderRunner::begin_sample(TensorView logits, std::span<const SampleRow> rows) {
  const int32_t vocab_size = decoder().config().vocab_size;
  if (num_ranks() == 1) return backend().begin_sample(logits, vocab_size, rows);
  const Draw draw{num_draws_++, threads_->num_failures()};
  threads_->run([&](int32_t index) {
    if (index == 0) return;
    Rank& rank = ranks_[static_cast<size_t>(index)];
    rank.backend->begin_sample({nullptr, DType::kF32, {0, vocab_size}}, vocab_size, {});
    rank.draws.push_back(draw.number);
  });
  backend().begin_sample(logits, vocab_size, rows);
  draws_.push_back(draw);
}

void DecoderRunner::end_sample(std::span<SampleResult> results) {
  if (num_ranks() == 1) return backend().end_sample(results);
  const Draw draw = draws_.front();
  draws_.pop_front();
  threads_->run([&](int32_t index) {
    if (index == 0) return backend().end_sample(results);
    Rank& rank = ranks_[static_cast<size_t>(index)];
    while (!rank.draws.empty() && rank.draws.front() <= draw.number) {
      rank.draws.pop_front();
      rank.backend->end_sample({});
    }
  });
  if (draw.failures != threads_->num_failures()) {
    std::rethrow_exception(threads_->last_failure());
  }
}

void DecoderRunner::settle() {
  if (devices_wait_) wait_for_all([this] { backend().read_back(nullptr, nullptr, 0); });
}

size_t DecoderRunner::memory_bytes() const {
  size_t bytes = 0;
  for (const Rank& rank : ranks_) bytes += rank.backend->bytes_in_use();
  return bytes;
}

size_t DecoderRunner::memory_pool_bytes() const {
  size_t bytes = 0;
  for (const Rank& rank : ranks_) bytes += rank.backend->bytes_held();
  return bytes;
}

bool DecoderRunner::lost() const noexcept {
  return std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.backend->lost(); });
}

size_t DecoderRunner::mapped_bytes() const {
  size_t bytes = 0;
  for (const Rank& rank : ranks_) bytes += rank.weights.decoder->adopted_bytes();
  return bytes;
}

}  // namespace headrace::internal
