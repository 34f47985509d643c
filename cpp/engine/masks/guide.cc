#include "engine/masks/guide.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/thread_time.h"

namespace headrace::internal {

Guide::Guide(std::shared_ptr<TokenConstraint> constraint, int32_t vocab_size, GuideEnds ends)
    : constraint_(std::move(constraint)), vocab_size_(vocab_size), ends_(std::move(ends)) {}

void Guide::set_due(std::optional<int32_t> token) {
  token_ = token;
  ready_.store(false, std::memory_order_relaxed);
}

void Guide::compute() noexcept {
  {
    const int32_t thread = this_thread_id();
    const MutexLock lock(mutex_);
    if (abandoned_) return;
    work_ = Work{thread, thread_cpu_nanoseconds(thread), std::chrono::steady_clock::now(), false};
  }
  try {
    advance();
    next_ = finish_mask(matcher_->next(allowed_));
  } catch (...) {
    next_ = Next::kFailed;
    failure_ = std::current_exception();
  }
  {
    const MutexLock lock(mutex_);
    work_.reset();
    ready_.store(true, std::memory_order_release);
  }
  done_.notify_one();
}

bool Guide::wait_for(std::chrono::nanoseconds time) {
  MutexLock lock(mutex_);
  return done_.wait_for(lock, time, [this] { return ready(); });
}

void Guide::interrupt_if_late(const MaskPatience& patience) {
  const MutexLock lock(mutex_);
  if (!work_ || work_->interrupted || !matcher_) return;
  const int64_t cpu = thread_cpu_nanoseconds(work_->thread_id) - work_->cpu_start;
  if (cpu < patience.cpu.count() &&
      std::chrono::steady_clock::now() - work_->start < patience.wall) {
    return;
  }
  work_->interrupted = true;
  matcher_->interrupt();
}

void Guide::abandon() {
  const MutexLock lock(mutex_);
  abandoned_ = true;
  if (!work_ || work_->interrupted || !matcher_) return;
  work_->interrupted = true;
  matcher_->interrupt();
}

void Guide::advance() {
  if (!matcher_) {
    auto matcher = constraint_->start();
    if (!matcher) throw_error(ErrorCode::kInvalidArgument, "the constraint started no matcher.");
    const MutexLock lock(mutex_);
    matcher_ = std::move(matcher);
    allowed_.resize(static_cast<size_t>(ceil_div(vocab_size_, 32)));
    if (abandoned_) throw_error(ErrorCode::kCancelled, "nobody waits for the constraint.");
  }
  if (token_) {
    matcher_->append(*token_);
    token_.reset();
    ++generated_;
  }
  std::fill(allowed_.begin(), allowed_.end(), 0u);
}

void Guide::set(int32_t token, bool allowed) {
  if (token < 0 || token >= vocab_size_) return;
  const uint32_t bit = 1u << (token % 32);
  uint32_t& word = allowed_[static_cast<size_t>(token) / 32];
  word = allowed ? word | bit : word & ~bit;
}

Guide::Next Guide::finish_mask(bool may_end) {
  if (vocab_size_ % 32 != 0) allowed_.back() &= (1u << (vocab_size_ % 32)) - 1;
  const bool too_early = generated_ < ends_.min_tokens;
  for (const int32_t token : ends_.eos) set(token, may_end && !too_early);
  for (const int32_t token : ends_.stop_tokens) {
    if (too_early || may_end) set(token, !too_early);
  }
  if (std::ranges::any_of(allowed_, [](uint32_t word) { return word != 0; })) return Next::kTokens;
  if (may_end) return Next::kEnd;
  throw_error(ErrorCode::kInvalidArgument, "the constraint allows no token after ", generated_,
              " generated tokens, and the output may not end there",
              too_early ? " (end and stop tokens can't come before min_tokens)." : ".");
}

}  // namespace headrace::internal
