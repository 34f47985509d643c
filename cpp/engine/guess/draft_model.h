#pragma once

// DraftModel: guesses by a second, smaller model with the same vocabulary.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/loop/step_runner.h"
#include "sample/sampler_state.h"

namespace headrace::internal {

/// Has a cache of its own with as many blocks as the model's, and uses the model's block tables:
/// what it has computed of a block is known by the tokens up to there, so that it follows
/// preemption and shared prefixes without being told. Whatever it holds, at worst a guess is wrong.
/// Used by the loop thread.
class DraftModel {
 public:
  struct Limits {
    int32_t max_rows = 0;  ///< of a step
    int32_t block_size = 0;
    int32_t num_blocks = 0;
  };

  /// A request that wants guesses.
  struct Request {
    std::span<const int32_t> tokens;  ///< all that are known, >= 1
    std::span<const int32_t> blocks;  ///< cover the known tokens and the guesses
    int32_t num_prompt_tokens = 0;
    int32_t most = 0;                       ///< guesses, >= 1
    const SamplerState* sampler = nullptr;  ///< guesses are drawn by its random numbers
    std::vector<int32_t>* guesses = nullptr;
    int32_t* read = nullptr;  ///< set to the number of known tokens that it has read
  };

  DraftModel(std::unique_ptr<StepRunner> runner, const Limits& limits);

  /// By the loop thread, before the first guess.
  void enter_thread() { runner_->enter_thread(); }

  /// Fills in the guesses: none for a request whose text it could not read to its end in one step
  /// of max_rows; what it has read is kept. Returns how many known tokens it has read.
  int32_t guess(std::span<const Request> requests);
  /// After a guess() that threw: reads texts again.
  void forget();

 private:
  /// What is in a block: the first `filled` positions, behind tokens of that hash.
  struct Tag {
    uint64_t hash = 0;
    int32_t filled = 0;
  };

  int32_t find_computed(const Request& request) const;
  void tag(const Request& request, int32_t first, int32_t end);
  void begin_batch();
  void add_rows(const Request& request, int32_t first, std::span<const int32_t> tokens, bool draws);
  int32_t read_known(std::span<const Request> requests);
  void draw();

  const std::unique_ptr<StepRunner> runner_;
  const Limits limits_;
  std::vector<Tag> tags_;  // [num_blocks]
  std::vector<int32_t> token_ids_, positions_, rope_lens_, logit_rows_;
  std::vector<SeqSlice> slices_;
  std::vector<const Request*> drawing_;  // [logit_rows_]
  std::vector<SampleRow> sample_rows_;
  std::vector<SampleResult> results_;
};

}  // namespace headrace::internal
