#include "engine/guess/speculator.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "base/check.h"
#include "spec/follow_times.h"

namespace headrace::internal {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Speculator::Speculator(const SpeculativeOptions& options, std::unique_ptr<DraftModel> draft,
                       std::unique_ptr<MtpDrafter> mtp)
    : options_(options),
      draft_(std::move(draft)),
      mtp_(std::move(mtp)),
      drafter_(draft_ ? static_cast<Drafter*>(draft_.get()) : mtp_.get()),
      costs_(static_cast<size_t>(options.num_speculative_tokens)) {
  HEADRACE_CHECK((options.method == "draft_model") == (draft_ != nullptr));
  HEADRACE_CHECK((options.method == "mtp") == (mtp_ != nullptr));
}

std::unique_ptr<Speculation> Speculator::start(std::span<const int32_t> prompt) const {
  auto out = std::make_unique<Speculation>();
  out->num_prompt_tokens = static_cast<int32_t>(prompt.size());
  if (drafter_ != nullptr) {
    out->tokens.assign(prompt.begin(), prompt.end());
  } else {
    out->lookup.emplace(options_.min_ngram_size, options_.max_ngram_size, prompt);
  }
  return out;
}

// What a guess adds to a step is paid by every request in it.
void Speculator::note_step(int32_t decodes, int32_t drafts, bool pure, double seconds) {
  if (pure) cost_.observe(decodes + drafts, seconds);
  if (mtp_) fund_ = std::min(kMostFund, fund_ + kReadShare);
  base_seconds_ = cost_.seconds(decodes);
  const double guess = base_seconds_ > 0 ? seconds_per_guess_ / base_seconds_ : 0;
  cost_each_ = drafts > 0 ? decodes * (cost_.extra(decodes, drafts) / drafts + guess) : 0;
  for (size_t i = 0; i < costs_.size(); ++i) {
    const auto count = static_cast<int32_t>(i) + 1;
    costs_[i] = decodes * (cost_.extra(decodes, count) + count * guess);
    if (i > 0) costs_[i] = std::max(costs_[i], costs_[i - 1]);
  }
}

void Speculator::note_result(Speculation& request, int32_t computed, int32_t confirmed) {
  request.gate.record(computed, confirmed, computed * cost_each_);
  fund_ = std::min(kMostFund, fund_ + kFundShare * confirmed);
}

void Speculator::append(Speculation& request, std::span<const int32_t> tokens) {
  if (request.lookup) {
    for (const int32_t token : tokens) request.lookup->append(token);
  } else {
    request.tokens.insert(request.tokens.end(), tokens.begin(), tokens.end());
  }
}

int32_t Speculator::propose(Speculation& request) const {
  const int32_t allowed = request.gate.allow(costs_);
  if (drafter_ != nullptr) return failures_ < kMostFailures && may_guess(request) ? allowed : 0;
  request.lookup->guess(allowed, request.drafts);
  return static_cast<int32_t>(request.drafts.size());
}

/// Whether the drafter has read the request's text, or may do so.
bool Speculator::may_guess(const Speculation& request) const {
  const auto known = static_cast<int32_t>(request.tokens.size());
  if (mtp_) return !request.unread.rows.empty() && request.unread.end() == known - 1;
  return can_pay(known - request.read);
}

/// Whether the fund pays for what the drafter would have to read.
bool Speculator::can_pay(int32_t rows) const {
  return rows <= kFreeRead || read_price() * rows * seconds_per_read_ <= fund_ * base_seconds_;
}

/// Who keeps rows of the step that is about to be computed.
void Speculator::choose_keepers(std::span<const Planned> planned) {
  for (const Planned& each : planned) {
    Speculation& request = *each.request;
    const auto rows = static_cast<size_t>(each.seq->num_tokens);
    const bool reads = mtp_->would_read(request.unread, each.seq->start_pos, rows);
    const bool pays = can_pay(each.seq->num_tokens) && (fund_ > 0 || !reads);
    if (!pays) request.is_blind = true;
    request.keeps_rows = !request.is_blind && failures_ < kMostFailures;
    if (!request.keeps_rows) request.unread.rows.clear();
  }
}

std::string Speculator::fill(std::span<const Planned> planned) {
  draft_requests_.clear();
  for (const Planned& each : planned) {
    std::vector<int32_t>& drafts = each.request->drafts;
    const int32_t room = each.seq->num_drafts;
    if (std::cmp_greater(drafts.size(), room)) drafts.resize(static_cast<size_t>(room));
    if (drafter_ != nullptr && room > 0) {
      draft_requests_.push_back({each.request->tokens, each.seq->blocks,
                                 each.request->num_prompt_tokens, room, each.sampler, &drafts,
                                 &each.request->read, &each.request->unread});
    }
  }
  const std::string failure = draft_requests_.empty() ? std::string() : ask_drafter();
  if (mtp_) choose_keepers(planned);
  return failure;
}

std::string Speculator::ask_drafter() {
  const auto start = Clock::now();
  try {
    const int32_t read = drafter_->guess(draft_requests_);
    failures_ = 0;
    note_draft_times(read, seconds_since(start));
    return {};
  } catch (const std::exception& error) {
    for (const Drafter::Request& request : draft_requests_) {
      request.guesses->clear();
      *request.read = 0;
    }
    drafter_->forget();
    ++failures_;
    return error.what();
  }
}

std::string Speculator::take_rows(std::span<const Computed> computed) {
  if (!mtp_) return {};
  list_rows(computed);
  if (computed_.empty()) return {};
  const auto start = Clock::now();
  try {
    const int32_t read = mtp_->take(computed_);
    if (read > 0) pay_reading(read, seconds_since(start));
    return {};
  } catch (const std::exception& error) {
    mtp_->forget();
    ++failures_;
    return error.what();
  }
}

void Speculator::list_rows(std::span<const Computed> computed) {
  computed_.clear();
  if (next_tokens_.size() < computed.size()) next_tokens_.resize(computed.size());
  for (const Computed& each : computed) {
    if (!each.request->keeps_rows) continue;
    const std::vector<int32_t>& known = each.request->tokens;
    std::vector<int32_t>& next = next_tokens_[computed_.size()];
    const auto first = std::min(known.size(), static_cast<size_t>(each.rows->start_pos) + 1);
    next.assign(known.begin() + static_cast<std::ptrdiff_t>(first), known.end());
    next.insert(next.end(), each.new_tokens.begin(), each.new_tokens.end());
    if (std::cmp_greater(next.size(), each.rows->num_rows)) {
      next.resize(static_cast<size_t>(each.rows->num_rows));
    }
    if (next.empty()) continue;
    computed_.push_back({&each.request->unread, each.rows->blocks, each.request->num_prompt_tokens,
                         each.rows->first_row, each.rows->start_pos, next});
  }
}

void Speculator::note_draft_times(int32_t read, double seconds) {
  size_t guesses = 0;
  for (const Drafter::Request& request : draft_requests_) guesses += request.guesses->size();
  if (std::cmp_less_equal(read, kFreeRead * draft_requests_.size())) {
    if (guesses > 0) {
      const double each = seconds / static_cast<double>(guesses);
      seconds_per_guess_ = follow_times(seconds_per_guess_, each);
    }
    return;
  }
  pay_reading(read, seconds - static_cast<double>(guesses) * seconds_per_guess_);
}

void Speculator::pay_reading(int32_t rows, double seconds) {
  seconds = std::max(0.0, seconds);
  seconds_per_read_ = follow_times(seconds_per_read_, seconds / rows);
  if (base_seconds_ > 0) fund_ -= read_price() * seconds / base_seconds_;
}

}  // namespace headrace::internal
