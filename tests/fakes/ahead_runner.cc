#include "fakes/ahead_runner.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"

namespace headrace::testing {

namespace {

std::vector<int32_t> copy_of(std::span<const int32_t> ids) { return {ids.begin(), ids.end()}; }

}  // namespace

AheadRunner::AheadRunner(std::unique_ptr<internal::StepRunner> model,
                         std::shared_ptr<FakeControl> control, int32_t vocab_size, bool runs_ahead)
    : model_(std::move(model)),
      control_(std::move(control)),
      mask_words_(ceil_div(vocab_size, 32)),
      runs_ahead_(runs_ahead) {}

void AheadRunner::copy_blocks(std::span<const BlockCopy> copies) {
  to_copy_.insert(to_copy_.end(), copies.begin(), copies.end());
}

TensorView AheadRunner::forward(const StepBatch& batch,
                                std::span<const LoraAdapter* const> adapters) {
  if (control_->fail_begins > 0) {
    --control_->fail_begins;
    throw Error(ErrorCode::kDevice, "injected failure of a launch");
  }
  if (!works_.empty() && !works_.back().draws.front().has_begun) {
    compute(works_.back());
    works_.pop_back();
  }
  HEADRACE_CHECK(works_.size() <= 1, "two steps are under way");
  Work work;
  work.copies = std::exchange(to_copy_, {});
  work.token_ids = copy_of(batch.token_ids);
  work.positions = copy_of(batch.positions);
  work.rope_lens = copy_of(batch.rope_lens);
  work.drawn = copy_of(batch.drawn);
  HEADRACE_CHECK(work.drawn.empty() || work.drawn.size() == work.token_ids.size());
  work.rope_positions = copy_of(batch.rope_positions);
  for (const GivenRows& given : batch.given) work.keep(given);
  work.seqs.assign(batch.seqs.begin(), batch.seqs.end());
  work.adapters.assign(adapters.begin(), adapters.end());
  for (SeqSlice& seq : work.seqs) {
    std::vector<std::vector<int32_t>>& tables = work.tables.emplace_back();
    for (int32_t i = 0; i < std::max(seq.blocks.num_tables(), 1); ++i) {
      tables.push_back(copy_of(seq.blocks[i]));
    }
    seq.blocks = tables;
  }
  last_ready_ = std::max(last_ready_, Clock::now()) +
                std::chrono::nanoseconds(control_->device_nanoseconds.load());
  work.ready = last_ready_;
  work.draws.push_back({copy_of(batch.logit_rows), {}, false});
  works_.push_back(std::move(work));
  return unread(batch.logit_rows.size());
}

TensorView AheadRunner::logits(std::span<const int32_t> rows) {
  works_.back().draws.push_back({copy_of(rows), {}, false});
  return unread(rows.size());
}

TensorView AheadRunner::hidden(std::span<const int32_t> rows) {
  HEADRACE_CHECK(works_.size() == 1, "another step is under way");
  compute(works_.front());
  wait_for(works_.front());
  return model_->hidden(rows);
}

/// Logits that nobody has computed.
TensorView AheadRunner::unread(size_t rows) {
  unread_.assign(std::max<size_t>(rows, 1), std::numeric_limits<float>::quiet_NaN());
  return {unread_.data(), DType::kF32, {static_cast<int64_t>(rows), 1}};
}

void AheadRunner::sample(TensorView logits, std::span<const SampleRow> rows,
                         std::span<SampleResult> results) {
  static_cast<void>(logits);
  HEADRACE_CHECK(works_.size() == 1, "another step is under way");
  Work& work = works_.front();
  compute(work);
  model_->sample(model_->logits(work.draws.back().logit_rows), rows, results);
  wait_for(work);
}

/// The step has ended, as far as time goes. It leaves the core to others until shortly before.
void AheadRunner::wait_for(const Work& work) {
  std::this_thread::sleep_until(work.ready - std::chrono::microseconds(200));
  while (Clock::now() < work.ready) {
  }
}

void AheadRunner::begin_sample(TensorView logits, std::span<const SampleRow> rows) {
  static_cast<void>(logits);
  Work& work = works_.back();
  Draw& draw = work.draws.back();
  HEADRACE_CHECK(!draw.has_begun && rows.size() <= draw.logit_rows.size(), rows.size());
  draw.has_begun = true;
  for (const SampleRow& row : rows) {
    Row& kept = draw.rows.emplace_back();
    kept.row = row;
    kept.bias.assign(row.bias.begin(), row.bias.end());
    kept.masked = copy_of(row.masked);
    kept.banned = copy_of(row.banned);
    kept.seen.assign(row.seen.begin(), row.seen.end());
    if (row.allowed != nullptr) kept.allowed.assign(row.allowed, row.allowed + mask_words_);
  }
  if (work.draws.size() == 1) ++control_->begun;
}

void AheadRunner::end_sample(std::span<SampleResult> results) {
  HEADRACE_CHECK(!works_.empty() && works_.front().draws.front().has_begun, "nothing has begun");
  if (!works_.front().is_computed) {
    ++control_->collected;
    if (works_.size() > 1) ++control_->covered;
  }
  struct Collected {
    std::deque<Work>& works;
    ~Collected() {
      works.front().draws.pop_front();
      if (works.front().draws.empty()) works.pop_front();
    }
  } const collected{works_};
  Work& work = works_.front();
  compute(work);
  const Draw& draw = work.draws.front();
  HEADRACE_CHECK(results.size() == draw.rows.size(), results.size());
  std::vector<SampleRow> rows;
  for (const Row& row : draw.rows) {
    rows.push_back(row.row);
    rows.back().bias = row.bias;
    rows.back().masked = row.masked;
    rows.back().banned = row.banned;
    rows.back().seen = row.seen;
    if (row.row.allowed != nullptr) rows.back().allowed = row.allowed.data();
  }
  model_->sample(model_->logits(draw.logit_rows), rows, results);
  for (const SampleResult& result : results) now_drawn_.push_back(result.token);
  wait_for(work);
}

void AheadRunner::Work::keep(const GivenRows& rows) {
  std::vector<TensorView> tensors = {rows.embeddings};
  tensors.insert(tensors.end(), rows.added.begin(), rows.added.end());
  for (TensorView& tensor : tensors) {
    const float* const first = tensor.as<float>();
    numbers.emplace_back(first, first + tensor.shape.elements());
    tensor.data = numbers.back().data();
  }
  given.emplace_back(rows.first_row, std::move(tensors));
}

/// The model's ops of one step. Where they fail, its draws fail, too.
void AheadRunner::compute(Work& work) {
  if (work.is_computed) return;
  last_drawn_ = std::exchange(now_drawn_, {});
  for (size_t i = 0; i < work.drawn.size(); ++i) {
    if (work.drawn[i] < 0) continue;
    HEADRACE_CHECK(work.token_ids[i] == 0);
    work.token_ids[i] = last_drawn_.at(static_cast<size_t>(work.drawn[i]));
  }
  model_->copy_blocks(work.copies);
  StepBatch batch{work.token_ids, work.positions, work.rope_lens, work.seqs, {}};
  std::vector<GivenRows> given;
  for (const auto& [first_row, tensors] : work.given) {
    given.push_back({first_row, tensors.front(), std::span(tensors).subspan(1)});
  }
  batch.given = given;
  batch.rope_positions = work.rope_positions;
  model_->forward(batch, work.adapters);
  work.is_computed = true;
}

}  // namespace headrace::testing
