#pragma once

// MtpDrafter: guesses by the model's own MTP block (model/decoder/mtp_block.h).

#include <cstdint>
#include <span>
#include <vector>

#include "engine/guess/drafter.h"
#include "model/decoder/mtp_step.h"

namespace headrace::internal {

/// What guessing needs of a model with an MTP block. One thread at a time, that of its steps.
class MtpRunner {
 public:
  virtual ~MtpRunner() = default;
  /// Decoder::guess and Decoder::keep.
  virtual TensorView guess(const MtpStep& step) = 0;
  virtual void keep(std::span<const int32_t> rows, int64_t first) = 0;
  /// As StepRunner has them.
  virtual int32_t max_logit_rows() const = 0;
  virtual void sample(TensorView logits, std::span<const SampleRow> rows,
                      std::span<SampleResult> results) = 0;
};

/// The block reads what the model makes of each position and writes keys and values of its own to
/// the model's blocks, so that they follow preemption, shared prefixes and host blocks. Rows to be
/// read are kept in a ring until a guess is wanted or there are many of them. What it couldn't read
/// is missing there: at worst a guess is wrong. Used by the loop thread.
class MtpDrafter final : public Drafter {
 public:
  struct Limits {
    int32_t max_rows = 0;     ///< of a step
    int32_t most_unread = 0;  ///< of a request, above the guesses of a step
    int64_t max_kept = 0;     ///< rows in the ring: at least most_unread
  };

  /// `runner` outlives it.
  MtpDrafter(MtpRunner& runner, const Limits& limits);

  /// Rows of the step that has just been computed, before any other.
  struct Computed {
    UnreadRows* unread = nullptr;
    std::span<const int32_t> blocks;
    int32_t num_prompt_tokens = 0;
    int32_t first_row = 0;                 ///< of the step
    int32_t first_position = 0;            ///< of that row
    std::span<const int32_t> next_tokens;  ///< of each row, >= 1
  };
  /// Keeps them, or reads them if they are too many. Returns how many it has read.
  int32_t take(std::span<const Computed> computed);
  /// Whether take() would read.
  bool would_read(const UnreadRows& unread, int32_t first_position, size_t count) const;

  /// No guesses for a request whose unread rows don't reach the last known token but one, or are
  /// too many for one step.
  int32_t guess(std::span<const Request> requests) override;
  void forget() override;

 private:
  /// Rows kept of a request that has more to keep than it may.
  struct Full {
    Computed request;
    std::vector<UnreadRows::Row> rows;
  };

  bool has_kept(const UnreadRows& unread) const;
  void keep_rows();
  int32_t read_full();
  int32_t add_unread(std::span<const Request> requests);
  void clear_batch();
  void add_computed(const Computed& computed, size_t count);
  void list_unread(const UnreadRows& unread);
  TensorView run(MtpInput input);

  MtpRunner& runner_;
  const Limits limits_;
  uint64_t num_kept_ = 0;           // rows ever kept: the next one's place is that modulo max_kept
  std::vector<int32_t> kept_rows_;  // of the step
  std::vector<Full> full_;
  GuessBatch batch_;
  std::vector<int32_t> rows_;         // of the batch: MtpStep::rows
  std::vector<int32_t> next_tokens_;  // of one request
  std::vector<const Request*> drawn_;
};

}  // namespace headrace::internal
