#include "engine/guess/speculator.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"

namespace headrace::internal {

namespace {

GuessText text_of(const Speculation& request, const BlockTables& blocks) {
  return {blocks, request.num_prompt_tokens, request.rope};
}

}  // namespace

Speculator::Speculator(const SpeculativeOptions& options, const StepCosts& costs,
                       std::unique_ptr<DraftModel> draft, std::unique_ptr<MtpDrafter> mtp)
    : options_(options),
      draft_(std::move(draft)),
      mtp_(std::move(mtp)),
      drafter_(draft_ ? static_cast<Drafter*>(draft_.get()) : mtp_.get()),
      rule_(costs, options.num_speculative_tokens) {
  HEADRACE_CHECK((options.method == "draft_model") == (draft_ != nullptr));
  HEADRACE_CHECK((options.method == "mtp") == (mtp_ != nullptr));
}

std::unique_ptr<Speculation> Speculator::start(std::span<const int32_t> prompt,
                                               const RopeLayout* rope) const {
  auto out = std::make_unique<Speculation>();
  if (mtp_) out->rope = rope;
  out->num_prompt_tokens = static_cast<int32_t>(prompt.size());
  if (drafter_ != nullptr) {
    out->tokens.assign(prompt.begin(), prompt.end());
  } else {
    out->lookup.emplace(options_.min_ngram_size, options_.max_ngram_size, prompt);
  }
  return out;
}

void Speculator::note_result(Speculation& request, int32_t computed, int32_t confirmed) {
  rule_.note_result(request.luck, computed, confirmed);
}

void Speculator::append(Speculation& request, std::span<const int32_t> tokens) {
  if (request.lookup) {
    for (const int32_t token : tokens) request.lookup->append(token);
  } else {
    request.tokens.insert(request.tokens.end(), tokens.begin(), tokens.end());
  }
}

int32_t Speculator::propose(Speculation& request) const {
  const int32_t allowed = rule_.allow(request.luck);
  if (drafter_ != nullptr) return failures_ < kMostFailures && may_guess(request) ? allowed : 0;
  request.lookup->guess(allowed, request.drafts);
  return static_cast<int32_t>(request.drafts.size());
}

/// Whether the drafter has read the request's text, or may do so.
bool Speculator::may_guess(const Speculation& request) const {
  const auto known = static_cast<int32_t>(request.tokens.size());
  if (mtp_) return !request.unread.rows.empty() && request.unread.end() == known - 1;
  return can_read(known - request.read);
}

/// Who keeps rows of the step that is about to be computed.
void Speculator::choose_keepers(std::span<const Planned> planned) {
  for (const Planned& each : planned) {
    Speculation& request = *each.request;
    const auto rows = static_cast<size_t>(each.seq->num_tokens);
    const bool reads = mtp_->would_read(request.unread, each.seq->start_pos, rows);
    const bool pays = can_read(each.seq->num_tokens) && (!reads || rule_.can_read(0));
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
      draft_requests_.push_back({each.request->tokens, text_of(*each.request, each.seq->tables),
                                 room, each.sampler, &drafts, &each.request->read,
                                 &each.request->unread});
    }
  }
  const std::string failure = draft_requests_.empty() ? std::string() : ask_drafter();
  if (mtp_) choose_keepers(planned);
  return failure;
}

std::string Speculator::ask_drafter() {
  try {
    const int32_t read = drafter_->guess(draft_requests_);
    failures_ = 0;
    if (std::cmp_greater(read, kFreeRead * draft_requests_.size())) rule_.note_read(read);
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
  try {
    rule_.note_read(mtp_->take(computed_));
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
    computed_.push_back({&each.request->unread, text_of(*each.request, each.rows->blocks),
                         each.rows->first_row, each.rows->start_pos, next});
  }
}

}  // namespace headrace::internal
