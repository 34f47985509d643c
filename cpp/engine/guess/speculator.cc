#include "engine/guess/speculator.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "base/check.h"
#include "spec/follow_times.h"

namespace headrace::internal {

Speculator::Speculator(const SpeculativeOptions& options, std::unique_ptr<DraftModel> draft)
    : options_(options),
      draft_(std::move(draft)),
      costs_(static_cast<size_t>(options.num_speculative_tokens)) {
  HEADRACE_CHECK((options.method == "draft_model") == (draft_ != nullptr));
}

std::unique_ptr<Speculation> Speculator::start(std::span<const int32_t> prompt) const {
  auto out = std::make_unique<Speculation>();
  out->num_prompt_tokens = static_cast<int32_t>(prompt.size());
  if (draft_) {
    out->tokens.assign(prompt.begin(), prompt.end());
  } else {
    out->lookup.emplace(options_.min_ngram_size, options_.max_ngram_size, prompt);
  }
  return out;
}

// What a guess adds to a step is paid by every request in it.
void Speculator::note_step(int32_t decodes, int32_t drafts, bool pure, double seconds) {
  if (pure) cost_.observe(decodes + drafts, seconds);
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
  if (draft_) return failures_ < kMostFailures && may_read(request) ? allowed : 0;
  request.lookup->guess(allowed, request.drafts);
  return static_cast<int32_t>(request.drafts.size());
}

/// Whether the fund pays for what the draft model would have to read.
bool Speculator::may_read(const Speculation& request) const {
  const int32_t unread = static_cast<int32_t>(request.tokens.size()) - request.read;
  return unread <= kFreeRead || unread * seconds_per_read_ <= fund_ * base_seconds_;
}

std::string Speculator::fill(std::span<const Planned> planned) {
  draft_requests_.clear();
  for (const Planned& each : planned) {
    std::vector<int32_t>& drafts = each.request->drafts;
    const int32_t room = each.seq->num_drafts;
    if (std::cmp_greater(drafts.size(), room)) drafts.resize(static_cast<size_t>(room));
    if (draft_ && room > 0) {
      draft_requests_.push_back({each.request->tokens, each.seq->blocks,
                                 each.request->num_prompt_tokens, room, each.sampler, &drafts,
                                 &each.request->read});
    }
  }
  return draft_requests_.empty() ? std::string() : ask_draft();
}

std::string Speculator::ask_draft() {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  try {
    const int32_t read = draft_->guess(draft_requests_);
    failures_ = 0;
    note_draft_times(read, std::chrono::duration<double>(Clock::now() - start).count());
    return {};
  } catch (const std::exception& error) {
    for (const DraftModel::Request& request : draft_requests_) {
      request.guesses->clear();
      *request.read = 0;
    }
    draft_->forget();
    ++failures_;
    return error.what();
  }
}

void Speculator::note_draft_times(int32_t read, double seconds) {
  size_t guesses = 0;
  for (const DraftModel::Request& request : draft_requests_) guesses += request.guesses->size();
  if (std::cmp_less_equal(read, kFreeRead * draft_requests_.size())) {
    if (guesses > 0) {
      const double each = seconds / static_cast<double>(guesses);
      seconds_per_guess_ = follow_times(seconds_per_guess_, each);
    }
    return;
  }
  const double reading = seconds - static_cast<double>(guesses) * seconds_per_guess_;
  seconds_per_read_ = follow_times(seconds_per_read_, std::max(0.0, reading) / read);
  if (base_seconds_ > 0) fund_ -= std::max(0.0, reading) / base_seconds_;
}

}  // namespace headrace::internal
