#pragma once

// A language model without arithmetic: the next token is a hash of all tokens before it, read back
// from a fake KV cache. Whatever mixes up rows, blocks, positions or requests changes the output.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/guess/mtp_drafter.h"
#include "engine/load/loaded_model.h"
#include "engine/runner/step_runner.h"
#include "headrace/engine.h"
#include "model/vision/vision_tower.h"

namespace headrace::testing {

/// Of a request that draws nothing and ends with its last token.
inline SamplingParams greedy(int32_t max_tokens) {
  return {.temperature = 0, .max_tokens = max_tokens, .ignore_eos = true};
}

/// What a test does to a fake model while it runs, and sees of it. Shared by test and model.
class FakeControl {
 public:
  /// Steps wait from now on / go on.
  void hold();
  void resume();
  /// Returns when a step is waiting. REQUIRES: hold(), and something to run.
  void wait_until_held();
  /// Whether a step is waiting.
  bool step_waits();
  /// Lets the waiting step go on, and no other. REQUIRES: wait_until_held() has returned.
  void step_once();
  /// The next `count` steps throw Error(kDevice); -1: all of them.
  void fail_steps(int count) { failures_ = count; }

  std::atomic<bool> lost{false};  ///< what the runner says of its device
  std::atomic<int> models_alive{0};
  std::atomic<int> steps{0};
  std::atomic<int> rows{0};
  std::atomic<int> most_logit_rows{0};  ///< of one call
  std::atomic<int> copies{0};           ///< of blocks
  std::atomic<bool> fail_loading{false};
  std::atomic<int64_t> step_nanoseconds{0};  ///< each step keeps its thread busy that long
  std::atomic<int> begun{0};                 ///< steps of an AheadRunner
  std::atomic<int> collected{0};             ///< of them, steps whose results have been waited for
  std::atomic<int> covered{0};               ///< of those, steps behind which another one had begun
  std::atomic<int> fail_begins{0};   ///< so many of the next steps of an AheadRunner can't begin
  std::atomic<int> mtp_rows{0};      ///< that an MTP block has computed
  std::atomic<int> mtp_mistakes{0};  ///< of them, batches that broke the contract
  std::atomic<int64_t> device_nanoseconds{0};  ///< that each step of an AheadRunner takes
  std::atomic<int> poison{-1};                 ///< the logits of this token's rows are NaN
  /// When the last step's tokens were chosen, in nanoseconds of steady_clock.
  std::atomic<int64_t> step_end{0};

  /// Called by the model in each step, and at its end.
  void pass();
  /// A step of an MTP block.
  void pass_mtp(int count);
  void note_end();
  /// An adapter whose rank is its path; throws Error(kCorruptFile) if fail_loading.
  std::unique_ptr<const LoraAdapter> load_lora(const std::string& path);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  bool waiting_ = false;
  int allowed_ = 0;  // steps that may pass while held
  std::atomic<int> failures_{0};
};

struct FakeShape {
  int32_t vocab_size = 50;
  int32_t num_blocks = 64;
  int32_t num_host_blocks = 0;
  int32_t num_state_slots = 0;  ///< above 0: it keeps states
  int32_t num_host_state_slots = 0;
  int32_t block_size = 16;
  int32_t max_logit_rows = 8;
  uint64_t salt = 0;      ///< another model for each
  bool late = false;      ///< its steps are an AheadRunner's
  bool ahead = false;     ///< and begin before the ones before have been waited for
  StepCosts costs{};      ///< as guessing sees them
  int64_t max_kept = 0;   ///< rows that its MTP block keeps
  uint64_t mtp_salt = 0;  ///< its MTP block is right if this is 0
  bool mtp_fails = false;
  int32_t first_vision_token = 0;        ///< rows of it and above are vision; 0: none
  std::shared_ptr<VisionTower> tower{};  ///< it takes images and clips, too
};

class FakeRunner final : public internal::StepRunner, public internal::MtpRunner {
 public:
  FakeRunner(const FakeShape& shape, std::shared_ptr<FakeControl> control);
  ~FakeRunner() override;

  void copy_blocks(std::span<const BlockCopy> copies) override;
  /// Throws InternalError if the batch is not what its contract says, if a row's history is not in
  /// the cache, or if a slice begins with another state than what its history makes.
  TensorView forward(const StepBatch& batch, std::span<const LoraAdapter* const> adapters) override;
  TensorView logits(std::span<const int32_t> rows) override;
  /// Two numbers: the row's token, and a hash of all up to it.
  TensorView hidden(std::span<const int32_t> rows) override;
  void read(const TensorView& rows, std::span<float> out) override;
  /// Throws InternalError, and counts it, if a row of the input isn't what the model made of that
  /// position.
  TensorView guess(const MtpStep& step) override;
  void keep(std::span<const int32_t> rows, int64_t first) override;
  int32_t max_logit_rows() const override { return shape_.max_logit_rows; }
  internal::MediaRows allocate_rows(int64_t rows, int32_t count) override;
  void upload_rows(std::span<const float> values, const TensorView& rows) override;
  void sample(TensorView logits, std::span<const SampleRow> rows,
              std::span<SampleResult> results) override;
  size_t memory_bytes() const override { return cells_.size() * sizeof(Cell) + *media_bytes_; }
  size_t memory_pool_bytes() const override { return cells_.capacity() * sizeof(Cell); }
  bool lost() const noexcept override { return control_->lost; }

 private:
  struct Cell {
    int32_t token = -1;
    int32_t position = -1;
    const LoraAdapter* lora = nullptr;  // that it was computed with
  };

  /// What a slot holds: a hash of the tokens before a position.
  struct State {
    uint64_t history = 0;
    int32_t position = -1;
  };

  Cell& cell(const SeqSlice& seq, int32_t position);
  State& slot(int32_t number);
  void check_state(const SeqSlice& seq, uint64_t history);
  void store_states(const StepBatch& batch);
  void copy_state(const BlockCopy& copy);
  uint64_t history_of(const SeqSlice& seq, int32_t position);
  std::vector<uint64_t> read_inputs(const MtpStep& step);
  std::vector<int32_t> seen_tokens(const StepBatch& batch) const;
  void fill_logits(TensorView out, int64_t row, uint64_t history) const;

  const FakeShape shape_;
  const std::shared_ptr<FakeControl> control_;
  std::vector<Cell> cells_, host_cells_;
  std::vector<State> slots_, host_slots_;
  const std::shared_ptr<std::atomic<size_t>> media_bytes_ =
      std::make_shared<std::atomic<size_t>>(0);  // of rows of media
  std::vector<uint64_t> row_hashes_;
  bool has_hidden_ = false;                      // row_hashes_ may be read
  std::vector<uint64_t> kept_hashes_, guessed_;  // MtpInput::kKept, kGuess
  std::vector<int32_t> row_tokens_;
  std::vector<float> logits_, hidden_;
};

/// What a greedy request without any processing generates, with an adapter of that rank (0: none),
/// and RoPE going by positions that are so much above those of generated tokens.
std::vector<int32_t> fake_greedy(std::vector<int32_t> prompt, int32_t count,
                                 int32_t vocab_size = FakeShape{}.vocab_size, int32_t lora_rank = 0,
                                 int32_t rope_delta = 0);

/// Numbers of a given row.
inline constexpr int32_t kFakeHidden = 4;

}  // namespace headrace::testing
