#include "engine/loop/step.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace headrace::internal {

namespace {

/// At a time, of the rows that are pooled: bounds the copies of a large step.
constexpr size_t kRowsRead = 64;

PositionLogprobs to_logprobs(SampleResult& result) {
  PositionLogprobs out{result.token, result.logprob, result.rank, {}};
  out.top.reserve(result.top.size());
  for (const TokenLogprob& best : result.top) out.top.emplace_back(best.token, best.logprob);
  return out;
}

}  // namespace

Step::Step(int32_t max_rows, int32_t max_seqs, int32_t first_vision_token)
    : first_vision_token_(first_vision_token) {
  const auto rows = static_cast<size_t>(max_rows);
  const auto seqs = static_cast<size_t>(max_seqs);
  for (auto* buffer : {&token_ids_, &positions_, &rope_lens_, &sources_}) buffer->reserve(rows);
  for (auto& axis : rope_axes_) axis.reserve(rows);
  slices_.reserve(seqs);
  logit_rows_.reserve(seqs);
  targets_.reserve(seqs);
  results_.reserve(seqs);
  drawn_.reserve(seqs);
  draw_rows_.reserve(seqs);
  draw_results_.reserve(seqs);
  sampled_.reserve(seqs);
  tokens_.reserve(seqs);
  counts_.reserve(seqs);
}

void Step::build(const StepPlan& plan, std::span<LiveRequest* const> live,
                 const Scheduler& scheduler, std::span<const SampledSeq> before) {
  for (auto* buffer : {&token_ids_, &positions_, &rope_lens_, &sources_, &logit_rows_,
                       &hidden_rows_, &tokens_, &counts_, &token_types_}) {
    buffer->clear();
  }
  for (auto& axis : rope_axes_) axis.clear();
  rope_positions_.clear();
  modalities_.clear();
  given_.clear();
  added_.clear();
  both_ways_.clear();
  has_axes_ = has_vision_ = has_types_ = false;
  pooled_.clear();
  headed_.clear();
  slices_.clear();
  adapters_.clear();
  held_adapters_.clear();
  targets_.clear();
  sampled_.clear();
  plans_ahead_ = true;
  has_sources_ = keeps_rows_ = draws_late_ = false;
  mask_wait_seconds_ = 0;
  for (size_t i = 0; i < plan.seqs.size(); ++i) {
    add_rows(plan.seqs[i], *live[i], scheduler, before);
  }
  if (has_axes_) {
    for (const auto& axis : rope_axes_) {
      rope_positions_.insert(rope_positions_.end(), axis.begin(), axis.end());
    }
  }
}

void Step::add_rows(const PlannedSeq& seq, LiveRequest& live, const Scheduler& scheduler,
                    std::span<const SampledSeq> before) {
  const auto first_row = static_cast<int32_t>(token_ids_.size());
  const auto prompt_len = static_cast<int32_t>(live.scored_prompt.size());
  const bool is_drawn = seq.drawn_by >= 0;
  plans_ahead_ = plans_ahead_ && seq.start_pos >= live.ahead_from;
  keeps_rows_ = keeps_rows_ || (live.speculation && live.speculation->keeps_rows);
  for (int32_t i = 0; i < seq.num_tokens; ++i) {
    const int32_t position = seq.start_pos + i;
    add_row(is_drawn ? 0 : seq.tokens[static_cast<size_t>(i)], position,
            scheduler.rope_len(seq.id, position), live.media.get());
    if (position == live.num_scored && position + 1 < prompt_len) {
      add_target({&live, live.scored_prompt[static_cast<size_t>(position) + 1], 0});
      ++live.num_scored;
    }
    if (live.pooler) pool_row(live, position);
  }
  const bool ends = seq.start_pos + seq.num_tokens >= seq.num_prompt_tokens;
  if (ends && live.pooler && live.pooler->wants_head()) headed_.push_back(&live);
  if (is_drawn) {
    sources_.back() = static_cast<int32_t>(before[static_cast<size_t>(seq.drawn_by)].first_target);
    has_sources_ = true;
  }
  if (seq.samples) {
    SampledSeq sampled;
    sampled.live = &live;
    sampled.first_target = sampled.next_target = targets_.size();
    add_target({&live, -1, sampled_.size(), is_drawn ? 1 : 0});
    draws_late_ = draws_late_ || live.guide || live.sampler->follows_output();
    if (seq.num_drafts > 0 && live.speculation) {
      const std::vector<int32_t>& drafts = live.speculation->drafts;
      sampled.num_drafts = static_cast<int32_t>(drafts.size());
      HEADRACE_CHECK(sampled.num_drafts <= seq.num_drafts, sampled.num_drafts);
      for (int32_t i = 0; i < sampled.num_drafts; ++i) {
        const int32_t position = seq.start_pos + seq.num_tokens + i;
        add_row(drafts[static_cast<size_t>(i)], position, scheduler.rope_len(seq.id, position),
                live.media.get());
        add_target({&live, -1, sampled_.size()});
      }
    }
    sampled_.push_back(sampled);
  }
  if (live.media) add_given(seq, *live.media, first_row);
  slices_.push_back({first_row, static_cast<int32_t>(token_ids_.size()) - first_row, seq.start_pos,
                     seq.tables, live.adapter == nullptr ? kNoAdapter : number_of(live.adapter)});
  put_states(seq, slices_.back());
  if (live.media && live.media->both_ways()) put_sight(*live.media, slices_.back());
}

/// If fewer guesses are computed than planned, the state behind the last row that is computed goes
/// where it would have been saved.
void Step::put_states(const PlannedSeq& seq, SeqSlice& slice) {
  slice.state_in = seq.state_in;
  slice.state_out = seq.state_out;
  const auto is_before = [&](const StateSave& save) { return save.row < slice.num_rows - 1; };
  const auto rest = std::ranges::find_if_not(seq.saves, is_before);
  slice.saves = {seq.saves.begin(), rest};
  if (rest != seq.saves.end()) slice.state_out = rest->slot;
}

/// Of an adapter, among those of the step.
int32_t Step::number_of(const std::shared_ptr<const LoraAdapter>& adapter) {
  const auto found = std::ranges::find(held_adapters_, adapter);
  const auto number = static_cast<int32_t>(found - held_adapters_.begin());
  if (found == held_adapters_.end()) {
    held_adapters_.push_back(adapter);
    adapters_.push_back(adapter.get());
  }
  return number;
}

void Step::add_row(int32_t token, int32_t position, int32_t rope_len, const RequestMedia* media) {
  std::array<int32_t, 3> axes = {position, position, position};
  if (media != nullptr && !media->rope().is_plain()) {
    axes = media->rope().at(position);
    has_axes_ = true;
  }
  for (size_t i = 0; i < axes.size(); ++i) rope_axes_[i].push_back(axes[i]);
  if (first_vision_token_ > 0) {
    const bool vision = token >= first_vision_token_;
    modalities_.push_back(vision ? Modality::kVision : Modality::kText);
    has_vision_ = has_vision_ || vision;
  }
  token_types_.push_back(0);
  token_ids_.push_back(token);
  positions_.push_back(position);
  rope_lens_.push_back(rope_len);
  sources_.push_back(-1);
}

/// Of the sequence's rows, those of its media.
void Step::add_given(const PlannedSeq& seq, const RequestMedia& media, int32_t first_row) {
  const int32_t end = seq.start_pos + seq.num_tokens;
  for (const MediaPlace& place : media.places()) {
    int32_t position = std::max(place.position, seq.start_pos);
    const int32_t last = std::min(place.end(), end);
    while (position < last) {
      const int32_t row = place.first_row + (position - place.position);
      const EncodedRows& unit = media.pinned(place.item, row);
      const int32_t in_unit = row - unit.first_row;
      const int32_t count = std::min(last - position, unit.count - in_unit);
      GivenRows& given = given_.emplace_back();
      given.first_row = first_row + (position - seq.start_pos);
      std::vector<TensorView>& added = added_.emplace_back();
      for (const TensorView& tensor : unit.rows.tensors) {
        added.push_back(tensor.rows_from(in_unit, count));
      }
      given.embeddings = added.front();
      given.added = std::span(added).subspan(1);
      position += count;
    }
  }
}

/// Which of a slice's rows see each other.
void Step::put_sight(const RequestMedia& media, SeqSlice& slice) {
  std::vector<PositionRange> ranges;
  for (const MediaPlace& place : media.places()) {
    const bool has_rows =
        place.end() > slice.start_pos && place.position < slice.start_pos + slice.num_rows;
    if (has_rows) ranges.push_back({place.position, place.end()});
  }
  if (!ranges.empty()) slice.both_ways = both_ways_.emplace_back(std::move(ranges));
}

/// Reads the logits of the row added last.
void Step::add_target(const Target& target) {
  logit_rows_.push_back(static_cast<int32_t>(token_ids_.size()) - 1);
  targets_.push_back(target);
}

/// Pools the row added last, once it is computed, if it is to be.
void Step::pool_row(LiveRequest& live, int32_t position) {
  token_types_.back() = live.pooler->token_type(position);
  has_types_ = has_types_ || token_types_.back() != 0;
  if (!live.pooler->wants(position)) return;
  if (live.pooler->wants_logits()) {
    add_target({&live, -1, 0, 0, position});
    return;
  }
  hidden_rows_.push_back(static_cast<int32_t>(token_ids_.size()) - 1);
  pooled_.push_back({&live, position});
}

void Step::run(StepRunner& runner, MaskWorkers* masks) {
  const auto most = static_cast<size_t>(runner.max_logit_rows());
  const size_t total = logit_rows_.size();
  if (results_.size() < total) results_.resize(total);
  const std::span<const int32_t> rows = logit_rows_;
  for (size_t first = 0; first == 0 || first < total; first += most) {
    const size_t end = std::min(first + most, total);
    const Chunk chunk{first, end, compute(runner, first, rows.subspan(first, end - first))};
    pool_logits(runner, chunk);
    first_draws(chunk);
    while (!drawn_.empty()) {
      draw(runner, chunk, masks);
      next_draws(chunk, masks);
    }
  }
  pool_hidden(runner);
  run_pool_head(runner);
  // What it has written will be found by others: a step that fails later must not take it along.
  if (targets_.empty() && pooled_.empty()) runner.settle();
  held_adapters_.clear();
  list_tokens();
}

void Step::pool_logits(StepRunner& runner, const Chunk& chunk) {
  for (size_t i = chunk.first; i < chunk.end; ++i) {
    const Target& target = targets_[i];
    if (target.pooled < 0) continue;
    floats_.resize(static_cast<size_t>(chunk.logits.cols()));
    runner.read(chunk.logits.rows_from(static_cast<int64_t>(i - chunk.first), 1), floats_);
    target.live->pooler->add(target.pooled, floats_);
    if (!target.live->pooler->finite()) target.live->not_finite = true;
  }
}

/// Last of all: to read all rows of a step uses it up (Decoder::hidden).
void Step::pool_hidden(StepRunner& runner) {
  const size_t total = pooled_.size();
  const bool all = total == token_ids_.size();
  const size_t most = all ? total : static_cast<size_t>(runner.max_logit_rows());
  for (size_t first = 0; first < total; first += most) {
    const size_t count = std::min(most, total - first);
    const TensorView rows = runner.hidden(std::span(hidden_rows_).subspan(first, count));
    const auto width = static_cast<size_t>(rows.cols());
    for (size_t done = 0; done < count; done += kRowsRead) {
      const size_t part = std::min(kRowsRead, count - done);
      floats_.resize(part * width);
      runner.read(rows.rows_from(static_cast<int64_t>(done), static_cast<int64_t>(part)), floats_);
      for (size_t i = 0; i < part; ++i) {
        const auto& [live, position] = pooled_[first + done + i];
        live->pooler->add(position, std::span(floats_).subspan(i * width, width));
        if (!live->pooler->finite()) live->not_finite = true;
      }
    }
  }
}

/// Behind pool_hidden(): gives rows that are pooled to the model's layers for them.
void Step::run_pool_head(StepRunner& runner) {
  const auto most = static_cast<size_t>(runner.max_logit_rows());
  for (size_t first = 0; first < headed_.size(); first += most) {
    const auto part = std::span(headed_).subspan(first, std::min(most, headed_.size() - first));
    floats_.clear();
    for (const LiveRequest* live : part) {
      const std::vector<float> row = live->pooler->pooled_row();
      floats_.insert(floats_.end(), row.begin(), row.end());
    }
    const TensorView rows = runner.read_pool_head(floats_);
    const auto width = static_cast<size_t>(rows.cols());
    floats_.resize(width);
    for (size_t i = 0; i < part.size(); ++i) {
      runner.read(rows.rows_from(static_cast<int64_t>(i), 1), floats_);
      part[i]->pooler->replace(floats_);
      if (!part[i]->pooler->finite()) part[i]->not_finite = true;
    }
  }
}

/// The logits of `wanted`, the rows from targets_[first] on. `draws`: StepBatch's.
TensorView Step::compute(StepRunner& runner, size_t first, std::span<const int32_t> wanted,
                         std::span<const SampleRow> draws) {
  if (first > 0) return runner.logits(wanted);
  StepBatch batch{token_ids_, positions_, rope_lens_, slices_, wanted};
  if (has_sources_) batch.drawn = sources_;
  batch.draws = draws;
  batch.all_hidden = keeps_rows_;
  batch.given = given_;
  batch.rope_positions = rope_positions_;
  if (has_vision_) batch.modalities = modalities_;
  if (has_types_) batch.token_types = token_types_;
  return runner.forward(batch, adapters_);
}

/// Those that wait for no other: prompts' rows, first draws, and guesses confirmed by the chunk
/// before.
void Step::first_draws(const Chunk& chunk) {
  drawn_.clear();
  for (size_t i = chunk.first; i < chunk.end; ++i) {
    const Target& target = targets_[i];
    if (target.pooled >= 0) continue;
    if (target.prompt_token >= 0 || sampled_[target.sampled].next_target == i) {
      drawn_.push_back(i);
    }
  }
}

void Step::draw(StepRunner& runner, const Chunk& chunk, MaskWorkers* masks) {
  draw_rows_.clear();
  std::erase_if(drawn_, [&](size_t target) {
    SampleRow row;
    if (!prepare(targets_[target], row, 0, masks)) return true;
    row.logits_row = static_cast<int32_t>(target - chunk.first);
    draw_rows_.push_back(row);
    return false;
  });
  if (drawn_.empty()) return;
  if (draw_results_.size() < drawn_.size()) draw_results_.resize(drawn_.size());
  const auto results = std::span(draw_results_).first(drawn_.size());
  runner.sample(chunk.logits, draw_rows_, results);
  for (size_t i = 0; i < drawn_.size(); ++i) std::swap(results_[drawn_[i]], results[i]);
}

/// False: nothing is to be drawn, because the guide has no token behind a guess.
bool Step::prepare(const Target& target, SampleRow& row, int32_t ahead, MaskWorkers* masks) {
  LiveRequest& live = *target.live;
  if (target.prompt_token >= 0) {
    row = live.sampler->prompt_row(0, target.prompt_token);
    return true;
  }
  row = live.sampler->next_row(0, ahead);
  if (!live.guide) return true;
  SampledSeq& seq = sampled_[target.sampled];
  if (wait_for_mask(*live.guide, *masks)) {
    row.allowed = live.guide->allowed();
    seq.guide_is_ahead = false;
    return true;
  }
  seq.is_unguided = seq.count == 0;
  if (!seq.is_unguided) seq.next_target = SampledSeq::kNone;
  return seq.is_unguided;
}

/// Whether there are tokens that may come.
bool Step::wait_for_mask(Guide& guide, MaskWorkers& masks) {
  using Clock = std::chrono::steady_clock;
  if (!guide.ready()) {
    const auto start = Clock::now();
    masks.wait(guide);
    mask_wait_seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
  }
  return guide.next() == Guide::Next::kTokens;
}

/// Reads what was drawn. What a guess has met goes on with the row behind the guess.
void Step::next_draws(const Chunk& chunk, MaskWorkers* masks) {
  size_t kept = 0;
  for (const size_t index : drawn_) {
    const Target& target = targets_[index];
    if (target.prompt_token >= 0) {
      note_prompt(index);
      continue;
    }
    SampledSeq& seq = sampled_[target.sampled];
    if (!results_[index].finite && !seq.is_unguided) {
      refuse(seq);
      continue;
    }
    seq.next_target = confirm(seq, results_[index].token, masks) ? index + 1 : SampledSeq::kNone;
    if (seq.next_target < chunk.end) drawn_[kept++] = seq.next_target;
  }
  drawn_.resize(kept);
}

void Step::note_prompt(size_t index) {
  LiveRequest& live = *targets_[index].live;
  if (!results_[index].finite) live.not_finite = true;
  live.prompt_logprobs.push_back(to_logprobs(results_[index]));
}

/// The row drawn from is not finite. Behind a guess that is found again when the row has its turn:
/// what was drawn before it is the same with and without guesses.
void Step::refuse(SampledSeq& seq) {
  seq.next_target = SampledSeq::kNone;
  if (seq.count > 0) {
    seq.guide_is_ahead = seq.live->guide != nullptr;
    return;
  }
  seq.count = 1;
  seq.not_finite = true;
}

/// Whether the token just drawn is the guess that was computed behind it.
bool Step::confirm(SampledSeq& seq, int32_t token, MaskWorkers* masks) {
  const int32_t nth = seq.count++;
  if (seq.is_unguided || nth == seq.num_drafts ||
      token != seq.live->speculation->drafts[static_cast<size_t>(nth)]) {
    return false;
  }
  seq.live->sampler->append(token);
  if (seq.live->guide) {
    masks->ask(seq.live->guide, token);
    seq.guide_is_ahead = true;
  }
  return true;
}

void Step::list_tokens() {
  for (const SampledSeq& seq : sampled_) {
    for (int32_t nth = 0; nth < seq.count; ++nth) tokens_.push_back(token(seq, nth));
    counts_.push_back(seq.count);
  }
}

int32_t Step::token(const SampledSeq& seq, int32_t nth) const {
  return results_[seq.first_target + static_cast<size_t>(nth)].token;
}

PositionLogprobs Step::take_logprobs(const SampledSeq& seq, int32_t nth) {
  return to_logprobs(results_[seq.first_target + static_cast<size_t>(nth)]);
}

}  // namespace headrace::internal
