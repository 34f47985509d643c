#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/contract/block_copy.h"
#include "backend/contract/sample_op.h"
#include "backend/contract/step_batch.h"
#include "base/check.h"
#include "engine/runner/media_rows.h"
#include "tensor/tensor_view.h"

namespace headrace {
class LoraAdapter;
}

namespace headrace::internal {

/// What the loop needs of a model: logits of a step, and tokens drawn from them. One thread at a
/// time.
class StepRunner {
 public:
  virtual ~StepRunner() = default;

  /// By the thread that will run the steps, before the first of them.
  virtual void enter_thread() {}
  /// Backend::copy_blocks in the model's cache: before the forward() of the plan that asks for it.
  virtual void copy_blocks(std::span<const BlockCopy> copies) = 0;
  /// Decoder::forward: logits of batch.logit_rows, for sample() and begin_sample() before the next
  /// call. end_sample() may come between. The adapters stay until the step's draws are collected.
  virtual TensorView forward(const StepBatch& batch,
                             std::span<const LoraAdapter* const> adapters) = 0;
  /// Decoder::logits: of other rows of the same step.
  virtual TensorView logits(std::span<const int32_t> rows) = 0;
  /// Decoder::hidden: rows of the same step after the final norm.
  virtual TensorView hidden(std::span<const int32_t> rows) {
    HEADRACE_CHECK(false, rows.size(), " rows: it gives no rows before the head");
  }
  /// Decoder::read_pool_head.
  virtual TensorView read_pool_head(std::span<const float> pooled) {
    HEADRACE_CHECK(false, pooled.size(), " numbers: it has no layers behind pooling");
  }
  /// What forward(), logits(), hidden() or read_pool_head() has just given, as float32 in host
  /// memory. REQUIRES: as many numbers in `out`.
  virtual void read(const TensorView& rows, std::span<float> out) {
    static_cast<void>(rows);
    HEADRACE_CHECK(false, out.size(), " numbers: its rows can't be read");
  }
  /// Memory for rows of media: `count` tensors [rows, hidden_size] act. Error(kOutOfMemory).
  virtual MediaRows allocate_rows(int64_t rows, int32_t count) {
    static_cast<void>(count);
    HEADRACE_CHECK(false, rows, " rows: it takes none that are given");
  }
  /// Fills one of them with rounded numbers from host memory.
  virtual void upload_rows(std::span<const float> values, const TensorView& rows) {
    static_cast<void>(rows);
    HEADRACE_CHECK(false, values.size(), " numbers: it takes no rows that are given");
  }
  /// Takes the memory that forward() of this batch keeps (Backend::reserve), and sample() of its
  /// logits. Computes nothing and changes no cache.
  virtual void reserve(const StepBatch& batch) { static_cast<void>(batch); }
  /// Most rows that one call of forward() or logits() gives.
  virtual int32_t max_logit_rows() const = 0;
  /// Backend::recorded_rows.
  virtual int32_t recorded_rows() const { return 0; }
  /// Backend::sample over the model's vocabulary.
  virtual void sample(TensorView logits, std::span<const SampleRow> rows,
                      std::span<SampleResult> results) = 0;
  /// Backend::runs_ahead, most_logprobs_ahead, begin_sample and end_sample.
  virtual bool runs_ahead() const { return false; }
  virtual int32_t most_logprobs_ahead() const { return -1; }
  virtual void begin_sample(TensorView logits, std::span<const SampleRow> rows) {
    static_cast<void>(logits);
    HEADRACE_CHECK(false, rows.size(), " rows: it does not run ahead");
  }
  virtual void end_sample(std::span<SampleResult> results) {
    HEADRACE_CHECK(false, results.size(), " results: it does not run ahead");
  }
  /// Returns when nothing is under way that the failure of a later call would cut short. Behind
  /// sample(), end_sample() and read() nothing is.
  virtual void settle() {}
  /// Memory the model uses now, without what is mapped from files, and what has been taken from the
  /// system for it. Any thread.
  virtual size_t memory_bytes() const = 0;
  virtual size_t memory_pool_bytes() const = 0;
  /// Backend::lost: no step will work again. Any thread.
  virtual bool lost() const noexcept { return false; }
  /// Bytes of files that it has mapped.
  virtual size_t mapped_bytes() const { return 0; }
};

}  // namespace headrace::internal
