#pragma once

// DraftModel: guesses by a second, smaller model with the same vocabulary.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/guess/drafter.h"
#include "engine/runner/step_runner.h"

namespace headrace::internal {

/// Has a cache of its own with as many blocks as the model's, and uses the model's block tables:
/// what it has computed of a block is known by the tokens up to there, so that it follows
/// preemption and shared prefixes without being told. Whatever it holds, at worst a guess is wrong.
/// Used by the loop thread.
class DraftModel final : public Drafter {
 public:
  struct Limits {
    int32_t max_rows = 0;  ///< of a step
    int32_t block_size = 0;
    int32_t num_blocks = 0;
  };

  DraftModel(std::unique_ptr<StepRunner> runner, const Limits& limits);

  void enter_thread() override { runner_->enter_thread(); }
  /// No guesses for a request whose text it could not read to its end in one step of max_rows; what
  /// it has read is kept.
  int32_t guess(std::span<const Request> requests) override;
  void forget() override;

 private:
  /// What is in a block: the first `filled` positions, behind tokens of that hash.
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
