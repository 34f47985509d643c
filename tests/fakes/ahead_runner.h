#pragma once

// A device whose results come late: it computes a step when the step's results are waited for, and
// not before, however many have begun meanwhile. It copies what it is given, and spoils what it
// need not keep, so that a span that is read too late, or a token that is read too early, shows.

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/runner/step_runner.h"
#include "fakes/fake_model.h"

namespace headrace::testing {

class AheadRunner final : public internal::StepRunner {
 public:
  /// `model` computes. FakeControl::device_nanoseconds is what each step takes from when the one
  /// before has ended. With `runs_ahead` false it is the same device, with the same steps, but its
  /// results have to be waited for before the next one begins.
  AheadRunner(std::unique_ptr<internal::StepRunner> model, std::shared_ptr<FakeControl> control,
              int32_t vocab_size, bool runs_ahead);

  void copy_blocks(std::span<const BlockCopy> copies) override;
  TensorView forward(const StepBatch& batch, std::span<const LoraAdapter* const> adapters) override;
  TensorView logits(std::span<const int32_t> rows) override;
  TensorView hidden(std::span<const int32_t> rows) override;
  void read(const TensorView& rows, std::span<float> out) override { model_->read(rows, out); }
  int32_t max_logit_rows() const override { return model_->max_logit_rows(); }
  internal::MediaRows allocate_rows(int64_t rows, int32_t count) override {
    return model_->allocate_rows(rows, count);
  }
  void upload_rows(std::span<const float> values, const TensorView& rows) override {
    model_->upload_rows(values, rows);
  }
  void sample(TensorView logits, std::span<const SampleRow> rows,
              std::span<SampleResult> results) override;
  bool runs_ahead() const override { return runs_ahead_; }
  int32_t most_logprobs_ahead() const override { return 4; }
  void begin_sample(TensorView logits, std::span<const SampleRow> rows) override;
  void end_sample(std::span<SampleResult> results) override;
  size_t memory_bytes() const override { return model_->memory_bytes(); }
  size_t memory_pool_bytes() const override { return model_->memory_pool_bytes(); }

 private:
  using Clock = std::chrono::steady_clock;

  struct Row {
    SampleRow row;
    std::vector<LogitBias> bias;
    std::vector<int32_t> masked, banned;
    std::vector<SeenToken> seen;
    std::vector<uint32_t> allowed;  ///< or none
  };
  /// Some rows of logits, and what is drawn from them.
  struct Draw {
    std::vector<int32_t> logit_rows;
    std::vector<Row> rows;
    bool has_begun = false;
  };
  struct Work {
    std::vector<BlockCopy> copies;  ///< made first
    std::vector<int32_t> token_ids, positions, rope_lens, drawn, rope_positions;
    std::vector<std::pair<int32_t, std::vector<TensorView>>> given;  ///< GivenRows
    std::deque<std::vector<float>> numbers;                          ///< of them
    std::vector<SeqSlice> seqs;
    std::vector<const LoraAdapter*> adapters;
    std::vector<std::vector<std::vector<int32_t>>> tables;  ///< of seqs, by group
    std::deque<Draw> draws;
    Clock::time_point ready;
    bool is_computed = false;

    void keep(const GivenRows& rows);
  };

  void compute(Work& work);
  static void wait_for(const Work& work);
  TensorView unread(size_t rows);

  const std::unique_ptr<internal::StepRunner> model_;
  const std::shared_ptr<FakeControl> control_;
  const int32_t mask_words_;
  const bool runs_ahead_;
  std::deque<Work> works_;          ///< whose draws have not all been collected; the last one's
                                    ///< logits may be asked for
  std::vector<BlockCopy> to_copy_;  ///< for the next
  std::vector<int32_t> last_drawn_, now_drawn_;
  Clock::time_point last_ready_;
  std::vector<float> unread_;
};

}  // namespace headrace::testing
