#pragma once

// Drafter: computes guesses of the next tokens. GuessBatch: the rows of one of its steps.

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/contract/sample_op.h"
#include "backend/contract/step_batch.h"
#include "engine/media/rope_layout.h"
#include "sample/sampler_state.h"
#include "tensor/tensor_view.h"

namespace headrace::internal {

/// One request's rows that an MTP block has not read yet: rows of the model after its final norm,
/// at positions first, first + 1, ...
struct UnreadRows {
  struct Row {
    uint64_t kept = 0;       ///< number of the row, counting all rows ever kept
    int32_t next_token = 0;  ///< the token at the next position
  };
  int32_t first = 0;
  std::vector<Row> rows;

  int32_t end() const noexcept { return first + static_cast<int32_t>(rows.size()); }
};

/// What a drafter's rows of one request have in common.
struct GuessText {
  BlockTables blocks;  ///< cover the known tokens and the guesses
  int32_t num_prompt_tokens = 0;
  const RopeLayout* rope = nullptr;  ///< null: RoPE goes by positions
};

/// Used by the loop thread.
class Drafter {
 public:
  /// A request for guesses.
  struct Request {
    std::span<const int32_t> tokens;  ///< all known tokens, >= 1
    GuessText text;
    int32_t most = 0;                       ///< most guesses, >= 1
    const SamplerState* sampler = nullptr;  ///< draws the guesses with its random numbers
    std::vector<int32_t>* guesses = nullptr;
    int32_t* read = nullptr;       ///< out, draft model: number of known tokens that it has read
    UnreadRows* unread = nullptr;  ///< for an MTP block
  };

  virtual ~Drafter() = default;
  /// The loop thread calls it before the first guess.
  virtual void enter_thread() {}
  /// Fills in the guesses; some requests may get none. Returns how many known tokens it has read.
  virtual int32_t guess(std::span<const Request> requests) = 0;
  /// Call it after a guess() that threw: the drafter forgets what it has read.
  virtual void forget() = 0;
};

/// A step of a drafter: rows, and the requests that draw from some rows.
class GuessBatch {
 public:
  void clear();
  /// Adds `tokens` at positions first, first + 1, ... If `draws`, the request draws from the last
  /// row's logits.
  void add(const Drafter::Request& request, int32_t first, std::span<const int32_t> tokens,
           bool draws);
  /// Adds rows without a request; they are only read.
  void add(const GuessText& text, int32_t first, std::span<const int32_t> tokens);

  bool empty() const noexcept { return slices_.empty(); }
  int32_t num_rows() const noexcept { return static_cast<int32_t>(token_ids_.size()); }
  std::span<const Drafter::Request* const> drawing() const noexcept { return drawing_; }
  /// Valid until the batch changes.
  StepBatch step();
  /// Draws a guess for each request that draws.
  using Sample = std::function<void(std::span<const SampleRow>, std::span<SampleResult>)>;
  void draw(const Sample& sample);

 private:
  std::vector<int32_t> token_ids_, positions_, rope_lens_, logit_rows_;
  std::array<std::vector<int32_t>, 3> rope_axes_;  // [T] each
  std::vector<int32_t> rope_positions_;            // StepBatch's
  bool has_axes_ = false;                          // a row's differ from its position
  std::vector<SeqSlice> slices_;
  std::vector<const Drafter::Request*> drawing_;  // [logit_rows_]
  std::vector<SampleRow> sample_rows_;
  std::vector<SampleResult> results_;
};

}  // namespace headrace::internal
