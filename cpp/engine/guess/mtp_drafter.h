#pragma once

// MtpDrafter: the model's own MTP block (model/decoder/mtp_block.h) makes the guesses.

#include <cstdint>
#include <span>
#include <vector>

#include "engine/guess/drafter.h"
#include "model/decoder/mtp_step.h"

namespace headrace::internal {

/// What guessing needs from a model with an MTP block. Used by the thread of the model's steps
/// only.
class MtpRunner {
 public:
  virtual ~MtpRunner() = default;
  /// Decoder::guess and Decoder::keep.
  virtual TensorView guess(const MtpStep& step) = 0;
  virtual void keep(std::span<const int32_t> rows, int64_t first) = 0;
  /// The same as in StepRunner.
  virtual int32_t max_logit_rows() const = 0;
  virtual void sample(TensorView logits, std::span<const SampleRow> rows,
                      std::span<SampleResult> results) = 0;
};

/// The block reads the model's row of each position, and writes its own keys and values to the
/// model's KV blocks, so that preemption, shared prefixes and host blocks apply to them, too.
/// Unread rows are kept in a ring until a guess is wanted or there are many of them. If the block
/// could not read a row, its keys and values are missing: a guess may be wrong, but never an
/// output. Where the next position has a picture's row, the block reads the embedding of that row's
/// token in its place. Used by the loop thread.
class MtpDrafter final : public Drafter {
 public:
  struct Limits {
    int32_t max_rows = 0;     ///< of a step
    int32_t most_unread = 0;  ///< rows of a request, beyond the guesses of a step
    int64_t max_kept = 0;     ///< rows in the ring, >= most_unread
  };

  /// `runner` must outlive the drafter.
  MtpDrafter(MtpRunner& runner, const Limits& limits);

  /// A request's rows of the step that was just computed.
  struct Computed {
    UnreadRows* unread = nullptr;
    GuessText text;
    int32_t first_row = 0;                 ///< of the step
    int32_t first_position = 0;            ///< position of that row
    std::span<const int32_t> next_tokens;  ///< the token after each row, >= 1
  };
  /// Keeps the rows, or reads them if there are too many. Returns how many it has read. Call it
  /// before any other step.
  int32_t take(std::span<const Computed> computed);
  /// Whether take() would read the rows.
  bool would_read(const UnreadRows& unread, int32_t first_position, size_t count) const;

  /// A request gets no guesses if its unread rows don't reach the second to last known token, or if
  /// they are too many for one step.
  int32_t guess(std::span<const Request> requests) override;
  void forget() override;

 private:
  /// The kept rows of a request with more rows than it may keep.
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
  std::vector<int32_t> rows_;         // MtpStep::rows of the batch
  std::vector<int32_t> next_tokens_;  // of one request
  std::vector<const Request*> drawn_;
};

}  // namespace headrace::internal
