#pragma once

// DraftModel: a second, smaller model with the same vocabulary makes the guesses.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/guess/drafter.h"
#include "engine/runner/step_runner.h"

namespace headrace::internal {

/// Has its own cache with as many blocks as the model's, and uses the model's block tables. A hash
/// of the tokens up to a block says what is computed there, so that preemption and shared prefixes
/// need no notice. If a block holds something else, a guess is wrong, but never an output. Used by
/// the loop thread.
class DraftModel final : public Drafter {
 public:
  struct Limits {
    int32_t max_rows = 0;  ///< in a step
    int32_t block_size = 0;
    int32_t num_blocks = 0;
  };

  DraftModel(std::unique_ptr<StepRunner> runner, const Limits& limits);

  void enter_thread() override { runner_->enter_thread(); }
  /// A request gets no guesses if its text doesn't fit one step of max_rows; the part that was read
  /// is kept.
  int32_t guess(std::span<const Request> requests) override;
  void forget() override;

 private:
  /// The contents of a block: its first `filled` positions, after tokens with that hash.
  struct Tag {
    uint64_t hash = 0;
    int32_t filled = 0;
  };

  int32_t find_computed(const Request& request) const;
  void tag(const Request& request, int32_t first, int32_t end);
  int32_t read_known(std::span<const Request> requests);
  void draw();

  const std::unique_ptr<StepRunner> runner_;
  const Limits limits_;
  std::vector<Tag> tags_;  // [num_blocks]
  GuessBatch batch_;
};

}  // namespace headrace::internal
