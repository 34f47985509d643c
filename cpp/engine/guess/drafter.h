#pragma once

// Drafter: what computes guesses of the tokens to come, and the rows of one of its steps.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/contract/sample_op.h"
#include "backend/contract/step_batch.h"
#include "sample/sampler_state.h"
#include "tensor/tensor_view.h"

namespace headrace::internal {

/// The model's rows after its final norm that an MTP block has not read yet, of one request: at
/// positions first, first + 1, ...
struct UnreadRows {
  struct Row {
    uint64_t kept = 0;       ///< which of all rows that were ever kept
    int32_t next_token = 0;  ///< at the position behind it
  };
  int32_t first = 0;
  std::vector<Row> rows;

  int32_t end() const noexcept { return first + static_cast<int32_t>(rows.size()); }
};

/// Used by the loop thread.
class Drafter {
 public:
  /// A request that wants guesses.
  struct Request {
    std::span<const int32_t> tokens;  ///< all that are known, >= 1
    std::span<const int32_t> blocks;  ///< cover the known tokens and the guesses
    int32_t num_prompt_tokens = 0;
    int32_t most = 0;                       ///< guesses, >= 1
    const SamplerState* sampler = nullptr;  ///< guesses are drawn by its random numbers
    std::vector<int32_t>* guesses = nullptr;
    int32_t* read = nullptr;       ///< a draft model sets it to the known tokens that it has read
    UnreadRows* unread = nullptr;  ///< of an MTP block
  };

  virtual ~Drafter() = default;
  /// By the loop thread, before the first guess.
  virtual void enter_thread() {}
  /// Fills in the guesses, of some requests none. Returns how many known tokens it has read.
  virtual int32_t guess(std::span<const Request> requests) = 0;
  /// After a guess() that threw: what has been read is not to be relied on.
  virtual void forget() = 0;
};

/// A step of a drafter: rows, and the requests that draw from some of them.
class GuessBatch {
 public:
  void clear();
  /// `tokens` at positions first, ...; `draws`: from the last one's logits.
  void add(const Drafter::Request& request, int32_t first, std::span<const int32_t> tokens,
           bool draws);
  /// Rows without a request behind them, to be read alone.
  void add(std::span<const int32_t> blocks, int32_t num_prompt_tokens, int32_t first,
           std::span<const int32_t> tokens);

  bool empty() const noexcept { return slices_.empty(); }
  int32_t num_rows() const noexcept { return static_cast<int32_t>(token_ids_.size()); }
  std::span<const Drafter::Request* const> drawing() const noexcept { return drawing_; }
  StepBatch step() const;
  /// Draws a guess for each request that draws.
  using Sample = std::function<void(std::span<const SampleRow>, std::span<SampleResult>)>;
  void draw(const Sample& sample);

 private:
  std::vector<int32_t> token_ids_, positions_, rope_lens_, logit_rows_;
  std::vector<SeqSlice> slices_;
  std::vector<const Drafter::Request*> drawing_;  // [logit_rows_]
  std::vector<SampleRow> sample_rows_;
  std::vector<SampleResult> results_;
};

}  // namespace headrace::internal
