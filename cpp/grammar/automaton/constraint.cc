#include "grammar/automaton/constraint.h"

#include <algorithm>
#include <atomic>
#include <string_view>
#include <utility>
#include <vector>

namespace headrace::grammar {

namespace {

class OwnMatcher final : public TokenMatcher {
 public:
  explicit OwnMatcher(std::shared_ptr<const OwnConstraint> constraint)
      : constraint_(std::move(constraint)), follower_(constraint_->shared()) {
    run("can't begin", [&](Budget* budget) { position_ = follower_->begin(budget); });
  }

  bool next(std::span<uint32_t> allowed) override {
    bool may_end = false;
    run("can't say what may follow", [&](Budget* budget) {
      may_end = follower_->allow(&position_, output_.empty(), allowed, budget);
    });
    return may_end;
  }

  void append(int32_t token) override {
    HEADRACE_CHECK(token >= 0 && static_cast<size_t>(token) < constraint_->vocabulary().size(),
                   token);
    const std::string_view bytes = constraint_->vocabulary().bytes(token, output_.empty());
    run("can't go on", [&](Budget* budget) { follower_->append(&position_, bytes, budget); });
    output_.push_back(token);
  }

  void interrupt() noexcept override { stop_.store(true, std::memory_order_relaxed); }

 private:
  /// Within its budget. What others have left behind may fill the shared follower's tables: then
  /// this one goes on alone. A budget that is spent would go no further there: all would have to be
  /// found out again.
  template <class Work>
  void run(const char* what, const Work& work) {
    try {
      Budget budget = own_budget();
      try {
        return work(&budget);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kLimitExceeded || alone_ || budget.is_spent()) throw;
      }
      begin_alone();
      budget = own_budget();
      work(&budget);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kLimitExceeded) throw;
      throw_error(ErrorCode::kLimitExceeded, "the grammar ", what, ": ", error.what());
    }
  }

  Budget own_budget() const {
    const GrammarLimits& limits = constraint_->limits();
    return {limits.token_fuel, limits.max_token_items, &stop_};
  }

  void begin_alone() {
    alone_ = true;
    std::shared_ptr<Follower> follower = constraint_->fresh(follower_);
    Budget budget = own_budget();
    Position position = follower->begin(&budget);
    for (size_t i = 0; i < output_.size(); ++i) {
      budget = own_budget();
      budget.check_stop();
      follower->append(&position, constraint_->vocabulary().bytes(output_[i], i == 0), &budget);
    }
    // Both at once: a position means nothing to another follower.
    follower_ = std::move(follower);
    position_ = std::move(position);
  }

  const std::shared_ptr<const OwnConstraint> constraint_;
  std::shared_ptr<Follower> follower_;
  bool alone_ = false;
  Position position_;
  std::vector<int32_t> output_;
  std::atomic<bool> stop_ = false;
};

}  // namespace

OwnConstraint::OwnConstraint(std::shared_ptr<const Vocabulary> vocabulary, Automaton automaton,
                             const GrammarLimits& limits)
    : vocabulary_(std::move(vocabulary)),
      automaton_(std::move(automaton)),
      limits_(limits),
      shared_(std::make_shared<Follower>(*vocabulary_, automaton_)) {}

OwnConstraint::~OwnConstraint() = default;

std::shared_ptr<OwnConstraint> OwnConstraint::make(std::shared_ptr<const Vocabulary> vocabulary,
                                                   Automaton automaton,
                                                   const GrammarLimits& limits) {
  const size_t ids = vocabulary->size();
  std::shared_ptr<OwnConstraint> out(
      new OwnConstraint(std::move(vocabulary), std::move(automaton), limits));
  Budget budget(limits.compile_fuel, limits.max_token_items);
  std::vector<uint32_t> allowed((ids + 31) / 32);
  const std::shared_ptr<Follower> follower = out->shared();
  Position position = follower->begin(&budget);
  const bool may_end = follower->allow(&position, true, allowed, &budget);
  if (!may_end && std::ranges::all_of(allowed, [](uint32_t word) { return word == 0; })) {
    throw_error(ErrorCode::kInvalidArgument, "no token of the vocabulary can begin such an output");
  }
  return out;
}

std::unique_ptr<TokenMatcher> OwnConstraint::start() const {
  return std::make_unique<OwnMatcher>(shared_from_this());
}

std::shared_ptr<Follower> OwnConstraint::shared() const {
  const MutexLock lock(mutex_);
  return shared_;
}

std::shared_ptr<Follower> OwnConstraint::fresh(const std::shared_ptr<Follower>& full) const {
  const MutexLock lock(mutex_);
  if (shared_ == full) shared_ = std::make_shared<Follower>(*vocabulary_, automaton_);
  return std::make_shared<Follower>(*vocabulary_, automaton_);
}

}  // namespace headrace::grammar
