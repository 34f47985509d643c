#include "headrace/thinking.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"

namespace headrace::inline v0 {

namespace {

constexpr uint32_t kAll = ~uint32_t{0};

void allow_only(std::span<uint32_t> allowed, int32_t token) {
  const auto word = static_cast<size_t>(token) / 32;
  if (word < allowed.size()) allowed[word] |= 1u << (token % 32);
}

class ThinkingMatcher final : public TokenMatcher {
 public:
  ThinkingMatcher(std::shared_ptr<const ThinkingLimits> limits,
                  std::unique_ptr<TokenMatcher> answer)
      : limits_(std::move(limits)), answer_(std::move(answer)) {
    if (limits_->begin.empty()) think();
  }

  bool next(std::span<uint32_t> allowed) override {
    switch (phase_) {
      case Phase::kOpening:
        return next_opening(allowed);
      case Phase::kThinking:
        std::ranges::fill(allowed, kAll);
        return false;
      case Phase::kClosing:
        allow_only(allowed, limits_->closing[place_]);
        return false;
      case Phase::kAnswer:
        break;
    }
    return next_answer(allowed);
  }

  void append(int32_t token) override {
    switch (phase_) {
      case Phase::kOpening:
        return open(token);
      case Phase::kThinking:
        return think_on(token);
      case Phase::kClosing:
        if (++place_ == limits_->closing.size()) phase_ = Phase::kAnswer;
        return;
      case Phase::kAnswer:
        if (answer_) answer_->append(token);
    }
  }

  void interrupt() noexcept override {
    if (answer_) answer_->interrupt();
  }

 private:
  enum class Phase : uint8_t { kOpening, kThinking, kClosing, kAnswer };

  /// The answer, or the start of the thinking, which has to go on once it has begun.
  bool next_opening(std::span<uint32_t> allowed) {
    const bool started = place_ > 0 && answer_;
    const bool may_end = !started && next_answer(allowed);
    allow_only(allowed, limits_->begin[place_]);
    return may_end;
  }

  bool next_answer(std::span<uint32_t> allowed) {
    if (answer_) return answer_->next(allowed);
    std::ranges::fill(allowed, kAll);
    return true;
  }

  void open(int32_t token) {
    if (token != limits_->begin[place_]) {
      phase_ = Phase::kAnswer;
      if (answer_) answer_->append(token);
    } else if (++place_ == limits_->begin.size()) {
      think();
    }
  }

  void think() {
    phase_ = Phase::kThinking;
    close_if_due();
  }

  void think_on(int32_t token) {
    ++thought_;
    const auto& end = limits_->end;
    if (recent_.size() == end.size()) recent_.erase(recent_.begin());
    recent_.push_back(token);
    if (recent_ == end) {
      phase_ = Phase::kAnswer;
    } else {
      close_if_due();
    }
  }

  void close_if_due() {
    if (limits_->max_tokens < 0 || thought_ < limits_->max_tokens) return;
    phase_ = Phase::kClosing;
    place_ = 0;
  }

  const std::shared_ptr<const ThinkingLimits> limits_;
  const std::unique_ptr<TokenMatcher> answer_;  // null: anything
  Phase phase_ = Phase::kOpening;
  size_t place_ = 0;  // in begin, or in closing
  int64_t thought_ = 0;
  std::vector<int32_t> recent_;  // as many of the last tokens as end has
};

class ThinkingConstraint final : public TokenConstraint {
 public:
  ThinkingConstraint(const ThinkingLimits& limits, std::shared_ptr<TokenConstraint> answer)
      : limits_(std::make_shared<const ThinkingLimits>(limits)), answer_(std::move(answer)) {}

  std::unique_ptr<TokenMatcher> start() const override {
    return std::make_unique<ThinkingMatcher>(limits_, answer_ ? answer_->start() : nullptr);
  }

 private:
  const std::shared_ptr<const ThinkingLimits> limits_;
  const std::shared_ptr<TokenConstraint> answer_;
};

template <class... Parts>
void check(bool fine, const Parts&... parts) {
  if (!fine) throw_error(ErrorCode::kInvalidArgument, "ThinkingLimits::", parts...);
}

void check_ids(const std::vector<int32_t>& ids, const char* name) {
  for (const int32_t token : ids) {
    check(token >= 0, name, " has the id ", token, "; ids are not negative.");
  }
}

}  // namespace

std::shared_ptr<TokenConstraint> limit_thinking(const ThinkingLimits& limits,
                                                std::shared_ptr<TokenConstraint> answer) {
  check_ids(limits.begin, "begin");
  check_ids(limits.end, "end");
  check_ids(limits.closing, "closing");
  check(!limits.end.empty(), "end is empty: name what ends the thinking.");
  check(!std::ranges::search(limits.closing, limits.end).empty(),
        "closing doesn't contain what ends the thinking.");
  check(limits.max_tokens >= -1, "max_tokens is ", limits.max_tokens,
        "; it must be at least 0, or -1 for any number.");
  return std::make_shared<ThinkingConstraint>(limits, std::move(answer));
}

}  // namespace headrace::inline v0
