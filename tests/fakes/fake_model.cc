#include "fakes/fake_model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "fakes/fake_media.h"
#include "model/lora/lora_adapter.h"

namespace headrace::testing {

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x7f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

float unit(uint64_t hash) {
  return (static_cast<float>(hash >> 40) + 0.5f) / static_cast<float>(1 << 24);
}

float fake_logit(uint64_t history, int32_t token) {
  return 8.0f * unit(mix(history, static_cast<uint64_t>(token))) - 4.0f;
}

uint64_t fake_history(int32_t lora_rank) { return static_cast<uint64_t>(lora_rank); }

uint64_t extend(uint64_t history, int32_t token) {
  return mix(history, static_cast<uint64_t>(token) + 1);
}

int64_t steady_nanoseconds() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

void keep_busy(int64_t nanoseconds) {
  const int64_t end = steady_nanoseconds() + nanoseconds;
  while (steady_nanoseconds() < end) {
  }
}

size_t best(std::span<const float> values) {
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

void process(std::span<float> logits, const SampleRow& row) {
  for (const LogitBias& bias : row.bias) logits[static_cast<size_t>(bias.token)] += bias.bias;
  for (int32_t token : row.masked) logits[static_cast<size_t>(token)] = kMinusInfinity;
  for (const SeenToken& seen : row.seen) {
    float& l = logits[static_cast<size_t>(seen.token)];
    l = l < 0 ? l * row.repetition_penalty : l / row.repetition_penalty;
    const auto count = static_cast<float>(seen.output_count);
    l -= count * row.frequency_penalty + (count > 0 ? row.presence_penalty : 0.0f);
  }
  if (!row.greedy) {
    for (float& l : logits) l /= row.temperature;
  }
  for (int32_t token : row.banned) logits[static_cast<size_t>(token)] = kMinusInfinity;
}

// The Gumbel trick: a draw from the softmax that depends on (seed, position) alone.
int32_t draw(std::span<float> logits, const SampleRow& row) {
  const uint64_t key = mix(row.seed, row.position);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] -= std::log(-std::log(unit(mix(key, i))));
  return static_cast<int32_t>(best(logits));
}

void report(std::span<const float> raw, int32_t num_logprobs, SampleResult& result) {
  double sum = 0;
  for (float l : raw) sum += std::exp(static_cast<double>(l));
  const auto logprob = [&](size_t i) { return raw[i] - static_cast<float>(std::log(sum)); };
  const auto token = static_cast<size_t>(result.token);
  result.logprob = logprob(token);
  result.rank =
      1 + static_cast<int32_t>(std::ranges::count_if(raw, [&](float l) { return l > raw[token]; }));
  std::vector<size_t> order(raw.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return raw[a] > raw[b]; });
  result.top.clear();
  for (size_t i = 0; i < static_cast<size_t>(num_logprobs); ++i) {
    result.top.push_back({static_cast<int32_t>(order[i]), logprob(order[i])});
  }
}

}  // namespace

void FakeControl::note_end() { step_end = steady_nanoseconds(); }

void FakeControl::hold() {
  const std::lock_guard lock(mutex_);
  held_ = true;
}

void FakeControl::resume() {
  const std::lock_guard lock(mutex_);
  held_ = false;
  changed_.notify_all();
}

void FakeControl::step_once() {
  const std::lock_guard lock(mutex_);
  ++allowed_;
  waiting_ = false;
  changed_.notify_all();
}

void FakeControl::wait_until_held() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_; });
}

bool FakeControl::step_waits() {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

void FakeControl::pass() {
  {
    std::unique_lock lock(mutex_);
    waiting_ = held_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !held_ || allowed_ > 0; });
    if (held_) --allowed_;
    waiting_ = false;
  }
  ++steps;
  keep_busy(step_nanoseconds);
  if (failures_ != 0) {
    if (failures_ > 0) --failures_;
    throw Error(ErrorCode::kDevice, "injected failure");
  }
}

void FakeControl::pass_mtp(int count) { mtp_rows += count; }

std::unique_ptr<const LoraAdapter> FakeControl::load_lora(const std::string& path) {
  if (fail_loading) throw Error(ErrorCode::kCorruptFile, "injected loading failure");
  return std::make_unique<const LoraAdapter>(nullptr, std::vector<std::unique_ptr<PackedLora>>(),
                                             std::stoi(path), 1);
}

FakeRunner::FakeRunner(const FakeShape& shape, std::shared_ptr<FakeControl> control)
    : shape_(shape),
      control_(std::move(control)),
      cells_(static_cast<size_t>(shape.num_blocks) * static_cast<size_t>(shape.block_size)),
      host_cells_(static_cast<size_t>(shape.num_host_blocks) *
                  static_cast<size_t>(shape.block_size)),
      slots_(static_cast<size_t>(shape.num_state_slots)),
      host_slots_(static_cast<size_t>(shape.num_host_state_slots)),
      kept_hashes_(static_cast<size_t>(shape.max_kept)),
      logits_(static_cast<size_t>(shape.max_logit_rows) * static_cast<size_t>(shape.vocab_size)) {
  ++control_->models_alive;
}

FakeRunner::~FakeRunner() { --control_->models_alive; }

FakeRunner::Cell& FakeRunner::cell(const SeqSlice& seq, int32_t position) {
  const auto index = static_cast<size_t>(position / shape_.block_size);
  HEADRACE_CHECK(index < seq.blocks.size(), position);
  const int32_t block = seq.blocks[0][index];
  HEADRACE_CHECK(block >= 0 && block < shape_.num_blocks, block);
  return cells_[static_cast<size_t>(block * shape_.block_size + position % shape_.block_size)];
}

void FakeRunner::copy_blocks(std::span<const BlockCopy> copies) {
  const int32_t size = shape_.block_size;
  for (const BlockCopy& copy : copies) {
    if (copy.is_state) {
      copy_state(copy);
      continue;
    }
    HEADRACE_CHECK(copy.block >= 0 && copy.block < shape_.num_blocks, copy.block);
    HEADRACE_CHECK(copy.host_block >= 0 && copy.host_block < shape_.num_host_blocks,
                   copy.host_block);
    const auto own = cells_.begin() + int64_t{copy.block} * size;
    const auto host = host_cells_.begin() + int64_t{copy.host_block} * size;
    std::copy_n(copy.to_host ? own : host, size, copy.to_host ? host : own);
    ++control_->copies;
  }
}

FakeRunner::State& FakeRunner::slot(int32_t number) {
  HEADRACE_CHECK(number >= 0 && number < shape_.num_state_slots, number);
  return slots_[static_cast<size_t>(number)];
}

void FakeRunner::copy_state(const BlockCopy& copy) {
  State& host = host_slots_.at(static_cast<size_t>(copy.host_block));
  if (copy.to_host) {
    host = slot(copy.block);
  } else {
    slot(copy.block) = host;
  }
  ++control_->copies;
}

void FakeRunner::check_state(const SeqSlice& seq, uint64_t history) {
  if (seq.state_in == kZeroState) {
    HEADRACE_CHECK(seq.start_pos == 0, "no state at position ", seq.start_pos);
    return;
  }
  const State& state = slot(seq.state_in);
  HEADRACE_CHECK(state.position == seq.start_pos && state.history == history, "slot ", seq.state_in,
                 " has the state of position ", state.position, ", not of ", seq.start_pos);
}

/// Behind the checks of all slices: what a slice stores to, no other one may load.
void FakeRunner::store_states(const StepBatch& batch) {
  for (const SeqSlice& seq : batch.seqs) {
    const auto store = [&](int32_t row, int32_t to) {
      HEADRACE_CHECK(row >= 0 && row < seq.num_rows, row);
      slot(to) = {row_hashes_.at(static_cast<size_t>(seq.first_row + row)),
                  seq.start_pos + row + 1};
    };
    store(seq.num_rows - 1, seq.state_out);
    for (const StateSave& save : seq.saves) {
      HEADRACE_CHECK(save.row < seq.num_rows - 1 && save.slot != seq.state_out, save.row);
      store(save.row, save.slot);
    }
  }
}

TensorView FakeRunner::forward(const StepBatch& batch,
                               std::span<const LoraAdapter* const> adapters) {
  const auto adapter_of = [&](const SeqSlice& seq) {
    HEADRACE_CHECK(seq.adapter >= kNoAdapter && std::cmp_less(seq.adapter, adapters.size()));
    return seq.adapter == kNoAdapter ? nullptr : adapters[static_cast<size_t>(seq.adapter)];
  };
  control_->pass();
  const size_t rows = batch.token_ids.size();
  control_->rows += static_cast<int>(rows);
  HEADRACE_CHECK(rows > 0 && batch.positions.size() == rows && batch.rope_lens.size() == rows);
  const std::vector<int32_t> tokens = seen_tokens(batch);
  int32_t next_row = 0;
  for (const SeqSlice& seq : batch.seqs) {  // all writes come before all reads, as in a layer
    HEADRACE_CHECK(seq.first_row == next_row && seq.num_rows >= 1);
    next_row += seq.num_rows;
    for (int32_t i = 0; i < seq.num_rows; ++i) {
      const auto row = static_cast<size_t>(seq.first_row + i);
      HEADRACE_CHECK(batch.positions[row] == seq.start_pos + i);
      cell(seq, seq.start_pos + i) = {tokens[row], seq.start_pos + i, adapter_of(seq)};
    }
  }
  HEADRACE_CHECK(static_cast<size_t>(next_row) == rows);
  row_tokens_.assign(batch.token_ids.begin(), batch.token_ids.end());
  has_hidden_ = batch.all_hidden || batch.logit_rows.size() == rows;
  row_hashes_.clear();
  for (const SeqSlice& seq : batch.seqs) {
    const LoraAdapter* const lora = adapter_of(seq);
    uint64_t history = fake_history(lora == nullptr ? 0 : lora->rank());
    for (int32_t position = 0; position < seq.start_pos + seq.num_rows; ++position) {
      if (position == seq.start_pos && !slots_.empty()) check_state(seq, history);
      const Cell& seen = cell(seq, position);
      HEADRACE_CHECK(seen.position == position, "row of position ", position, " is lost");
      HEADRACE_CHECK(seen.lora == lora, "row of position ", position, " has another adapter");
      history = extend(history, seen.token);
      if (position >= seq.start_pos) row_hashes_.push_back(history);
    }
  }
  if (!slots_.empty()) store_states(batch);
  return logits(batch.logit_rows);
}

/// Tokens, or what stands in their places and where RoPE puts them.
std::vector<int32_t> FakeRunner::seen_tokens(const StepBatch& batch) const {
  std::vector<int32_t> out(batch.token_ids.begin(), batch.token_ids.end());
  const int32_t first_vision = shape_.first_vision_token;
  for (size_t row = 0; row < out.size(); ++row) {
    const bool is_vision = !batch.modalities.empty() && batch.modalities[row] == Modality::kVision;
    HEADRACE_CHECK(is_vision == (first_vision > 0 && out[row] >= first_vision), out[row]);
  }
  int64_t free_from = 0;
  for (const GivenRows& given : batch.given) {
    HEADRACE_CHECK(given.first_row >= free_from, given.first_row);
    free_from = given.first_row + given.embeddings.rows();
    for (int64_t row = 0; row < given.embeddings.rows(); ++row) {
      const auto numbers = [&](const TensorView& tensor) {
        HEADRACE_CHECK(tensor.cols() == kFakeHidden && tensor.rows() == given.embeddings.rows());
        return std::vector<float>(tensor.row<float>(row), tensor.row<float>(row) + kFakeHidden);
      };
      std::vector<std::vector<float>> added;
      for (const TensorView& tensor : given.added) added.push_back(numbers(tensor));
      out.at(static_cast<size_t>(given.first_row + row)) =
          given_token(numbers(given.embeddings), added);
    }
  }
  for (size_t row = 0; row < out.size(); ++row) {
    out[row] = placed_token(out[row], batch.positions[row], batch.rope_position(row));
  }
  return out;
}

internal::MediaRows FakeRunner::allocate_rows(int64_t rows, int32_t count) {
  const auto numbers = static_cast<size_t>(rows * count * kFakeHidden);
  *media_bytes_ += numbers * sizeof(float);
  std::shared_ptr<std::vector<float>> memory(
      new std::vector<float>(numbers, std::numeric_limits<float>::quiet_NaN()),
      [bytes = media_bytes_, numbers](std::vector<float>* gone) {
        delete gone;
        *bytes -= numbers * sizeof(float);
      });
  internal::MediaRows out;
  for (int32_t i = 0; i < count; ++i) {
    out.tensors.emplace_back(memory->data() + i * rows * kFakeHidden, DType::kF32,
                             Shape{rows, kFakeHidden});
  }
  out.owner = std::move(memory);
  return out;
}

void FakeRunner::upload_rows(std::span<const float> values, const TensorView& rows) {
  HEADRACE_CHECK(std::cmp_equal(values.size(), rows.shape.elements()), values.size());
  std::ranges::copy(values, rows.as<float>());
}

TensorView FakeRunner::logits(std::span<const int32_t> rows) {
  const auto count = static_cast<int32_t>(rows.size());
  HEADRACE_CHECK(count <= shape_.max_logit_rows, count);
  control_->most_logit_rows = std::max(control_->most_logit_rows.load(), count);
  TensorView out(logits_.data(), DType::kF32, {count, shape_.vocab_size});
  for (int32_t i = 0; i < count; ++i) {
    const auto row = static_cast<size_t>(rows[static_cast<size_t>(i)]);
    fill_logits(out, i, row_hashes_.at(row) + shape_.salt);
    if (row_tokens_.at(row) == control_->poison) {
      out.row<float>(i)[0] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  return out;
}

void FakeRunner::fill_logits(TensorView out, int64_t row, uint64_t history) const {
  for (int32_t token = 0; token < shape_.vocab_size; ++token) {
    out.row<float>(row)[token] = fake_logit(history, token);
  }
}

/// Of the tokens up to there that the cache holds.
uint64_t FakeRunner::history_of(const SeqSlice& seq, int32_t position) {
  uint64_t history = fake_history(cell(seq, 0).lora == nullptr ? 0 : cell(seq, 0).lora->rank());
  for (int32_t i = 0; i <= position; ++i) {
    HEADRACE_CHECK(cell(seq, i).position == i, "row of position ", i, " is lost");
    history = extend(history, cell(seq, i).token);
  }
  return history;
}

void FakeRunner::keep(std::span<const int32_t> rows, int64_t first) {
  HEADRACE_CHECK(has_hidden_);
  for (const int32_t row : rows) {
    kept_hashes_.at(static_cast<size_t>(first++)) = row_hashes_.at(static_cast<size_t>(row));
  }
}

TensorView FakeRunner::guess(const MtpStep& step) {
  const StepBatch& batch = step.batch;
  control_->pass_mtp(static_cast<int>(batch.token_ids.size()));
  if (shape_.mtp_fails) throw Error(ErrorCode::kDevice, "injected failure of a guess");
  std::vector<uint64_t> hashes;
  try {
    hashes = read_inputs(step);
  } catch (const InternalError&) {
    ++control_->mtp_mistakes;
    throw;
  }
  has_hidden_ = false;
  const auto count = static_cast<int32_t>(batch.logit_rows.size());
  TensorView out(logits_.data(), DType::kF32, {count, shape_.vocab_size});
  guessed_.clear();
  for (int32_t i = 0; i < count; ++i) {
    guessed_.push_back(hashes.at(static_cast<size_t>(batch.logit_rows[static_cast<size_t>(i)])));
    fill_logits(out, i, guessed_.back() + shape_.mtp_salt);
  }
  return out;
}

/// What the rows make of their tokens.
std::vector<uint64_t> FakeRunner::read_inputs(const MtpStep& step) {
  const StepBatch& batch = step.batch;
  HEADRACE_CHECK(step.rows.size() == batch.token_ids.size());
  HEADRACE_CHECK(step.input != MtpInput::kStep || has_hidden_);
  const std::vector<uint64_t>& input = step.input == MtpInput::kStep   ? row_hashes_
                                       : step.input == MtpInput::kKept ? kept_hashes_
                                                                       : guessed_;
  std::vector<uint64_t> hashes;
  for (const SeqSlice& seq : batch.seqs) {
    for (int32_t i = 0; i < seq.num_rows; ++i) {
      const auto row = static_cast<size_t>(seq.first_row + i);
      const uint64_t history = input.at(static_cast<size_t>(step.rows[row]));
      HEADRACE_CHECK(batch.positions[row] == seq.start_pos + i && row == hashes.size());
      cell(seq, seq.start_pos + i);  // a block must be there
      HEADRACE_CHECK(
          step.input == MtpInput::kGuess || history == history_of(seq, seq.start_pos + i),
          "another row than that of position ", seq.start_pos + i);
      hashes.push_back(extend(history, batch.token_ids[row]));
    }
  }
  return hashes;
}

TensorView FakeRunner::hidden(std::span<const int32_t> rows) {
  hidden_.clear();
  for (const int32_t row : rows) {
    const int32_t token = row_tokens_.at(static_cast<size_t>(row));
    const bool poisoned = token == control_->poison;
    hidden_.push_back(poisoned ? std::numeric_limits<float>::quiet_NaN()
                               : static_cast<float>(token));
    hidden_.push_back(unit(row_hashes_.at(static_cast<size_t>(row))));
  }
  return {hidden_.data(), DType::kF32, {static_cast<int64_t>(rows.size()), 2}};
}

void FakeRunner::read(const TensorView& rows, std::span<float> out) {
  std::copy_n(rows.as<float>(), out.size(), out.data());
}

void FakeRunner::sample(TensorView logits, std::span<const SampleRow> rows,
                        std::span<SampleResult> results) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const SampleRow& row = rows[i];
    const std::span<float> values(logits.row<float>(row.logits_row),
                                  static_cast<size_t>(shape_.vocab_size));
    results[i].finite = std::ranges::none_of(values, [](float l) { return std::isnan(l); });
    const auto is_allowed = [&](size_t t) { return (row.allowed[t / 32] >> (t % 32)) & 1u; };
    for (size_t t = 0; row.allowed != nullptr && t < values.size(); ++t) {
      if (!is_allowed(t)) values[t] = kMinusInfinity;
    }
    const std::vector<float> raw(values.begin(), values.end());
    if (row.forced_token >= 0) {
      results[i].token = row.forced_token;
    } else {
      process(values, row);
      results[i].token = row.greedy ? static_cast<int32_t>(best(values)) : draw(values, row);
      size_t t = static_cast<size_t>(results[i].token);
      if (row.allowed != nullptr && !is_allowed(t)) {
        for (t = 0; !is_allowed(t);) ++t;
        results[i].token = static_cast<int32_t>(t);
      }
    }
    if (row.num_logprobs >= 0) report(raw, row.num_logprobs, results[i]);
  }
  control_->note_end();
}

std::vector<int32_t> fake_greedy(std::vector<int32_t> prompt, int32_t count, int32_t vocab_size,
                                 int32_t lora_rank, int32_t rope_delta) {
  uint64_t history = fake_history(lora_rank);
  auto position = static_cast<int32_t>(prompt.size());
  for (int32_t token : prompt) history = extend(history, token);
  std::vector<int32_t> out;
  std::vector<float> logits(static_cast<size_t>(vocab_size));
  while (std::cmp_less(out.size(), count)) {
    for (int32_t token = 0; token < vocab_size; ++token) {
      logits[static_cast<size_t>(token)] = fake_logit(history, token);
    }
    out.push_back(static_cast<int32_t>(best(logits)));
    const int32_t placed = position + rope_delta;
    history = extend(history, placed_token(out.back(), position++, {placed, placed, placed}));
  }
  return out;
}

}  // namespace headrace::testing
