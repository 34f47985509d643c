#include <algorithm>
#include <array>
#include <cstring>

#include "backend/checks/op_checks_attention.h"
#include "backend/reference/reference_sample.h"
#include "base/check.h"
#include "base/checked_math.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/host/ops/sample_args.h"
#include "cuda/kernels/sample/sample.h"

namespace headrace::cuda {

namespace {

// Of a launch's lists: rows with longer ones take several launches.
constexpr size_t kListBytes = size_t{4} << 20;
// Of the lists of one row, for each id of the vocabulary: bias, masked, banned and seen tokens, and
// the floats that they replace.
constexpr size_t kMostBytesPerId =
    sizeof(LogitBias) + 2 * sizeof(int32_t) + sizeof(SeenToken) + 4 * sizeof(float);

/// Words of one row's bit mask.
size_t mask_words(int32_t vocab_size) { return static_cast<size_t>(ceil_div(vocab_size, 32)); }

size_t results_bytes(size_t rows) {
  return round_up(rows * sizeof(SampleRowResult), alignof(std::max_align_t));
}

size_t output_bytes(size_t rows, int32_t most_logprobs) {
  return results_bytes(rows) + rows * static_cast<size_t>(most_logprobs) * sizeof(TokenLogprob);
}

int32_t most_logprobs_of(std::span<const SampleRow> rows) {
  int32_t most = 0;
  for (const SampleRow& row : rows) most = std::max(most, row.num_logprobs);
  return most;
}

/// Reads what a launch over `targets` has left in pinned memory.
void read_samples(const std::byte* output, std::span<SampleResult* const> targets,
                  int32_t most_logprobs) {
  const auto* found = reinterpret_cast<const SampleRowResult*>(output);
  const auto* top = reinterpret_cast<const TokenLogprob*>(output + results_bytes(targets.size()));
  for (size_t i = 0; i < targets.size(); ++i, top += most_logprobs) {
    SampleResult& result = *targets[i];
    result.finite = found[i].finite;
    result.token = found[i].token;
    result.logprob = found[i].logprob;
    result.rank = found[i].rank;
    HEADRACE_CHECK(found[i].num_top >= 0 && found[i].num_top <= most_logprobs, found[i].num_top);
    result.top.assign(top, top + found[i].num_top);
  }
}

}  // namespace

/// Where a launch leaves its results.
struct CudaBackend::SampleOutput {
  SampleRowResult* results;
  TokenLogprob* top;
  int32_t max_logprobs;
  int32_t* drawn;  ///< SampleArgs's

  /// Rows that have been launched.
  void skip(size_t rows) {
    results += rows;
    top += rows * static_cast<size_t>(max_logprobs);
    drawn += rows;
  }
};

/// For `rows` rows, in output_bytes() of memory.
CudaBackend::SampleOutput CudaBackend::output_in(std::byte* memory, size_t rows,
                                                 int32_t max_logprobs) {
  return {.results = reinterpret_cast<SampleRowResult*>(memory),
          .top = reinterpret_cast<TokenLogprob*>(memory + results_bytes(rows)),
          .max_logprobs = max_logprobs,
          .drawn = nullptr};
}

bool CudaBackend::on_device(const SampleRow& row) const {
  return !samples_on_host_ && row.num_logprobs <= kMaxDeviceLogprobs;
}

/// Rows of one launch, their lists side by side.
struct CudaBackend::SampleBatch {
  std::vector<SampleRowArgs> rows;
  std::vector<SampleResult*> targets;
  std::vector<bool> guided;  ///< rows with a mask of their own in `allowed`
  std::vector<LogitBias> bias;
  std::vector<int32_t> tokens;
  std::vector<SeenToken> seen;
  std::vector<uint32_t> allowed;
  int32_t most_logprobs = 0;

  void reserve(size_t count) {
    rows.reserve(count);
    targets.reserve(count);
    guided.reserve(count);
  }
  void add(const SampleRow& row, int32_t vocab_size, SampleResult* target) {
    SampleRowArgs args = sample_args_without_lists(row);
    args.bias = append(bias, row.bias);
    args.masked = append_once(tokens, row.masked);
    args.banned = append_once(tokens, row.banned);
    args.seen = append(seen, row.seen);
    if (row.allowed != nullptr) {
      append(allowed, std::span<const uint32_t>(row.allowed, mask_words(vocab_size)));
    }
    guided.push_back(row.allowed != nullptr);
    rows.push_back(args);
    targets.push_back(target);
    most_logprobs = std::max(most_logprobs, row.num_logprobs);
  }
  size_t edits() const { return bias.size() + tokens.size() + seen.size(); }
  size_t list_bytes() const {
    return bias.size() * sizeof(LogitBias) + tokens.size() * sizeof(int32_t) +
           seen.size() * sizeof(SeenToken) + allowed.size() * sizeof(uint32_t) +
           edits() * sizeof(float);
  }

 private:
  template <class T>
  static SampleRange append(std::vector<T>& list, std::span<const T> items) {
    const auto begin = static_cast<int32_t>(list.size());
    list.insert(list.end(), items.begin(), items.end());
    return {begin, static_cast<int32_t>(list.size())};
  }
  /// Ids that may come twice: the device remembers what it overwrites, so each is named once.
  static SampleRange append_once(std::vector<int32_t>& list, std::span<const int32_t> ids) {
    const auto begin = static_cast<ptrdiff_t>(list.size());
    list.insert(list.end(), ids.begin(), ids.end());
    std::sort(list.begin() + begin, list.end());
    list.erase(std::unique(list.begin() + begin, list.end()), list.end());
    return {static_cast<int32_t>(begin), static_cast<int32_t>(list.size())};
  }
};

void CudaBackend::sample(TensorView logits, int32_t vocab_size, std::span<const SampleRow> rows,
                         std::span<SampleResult> results) {
  check_sample(logits, vocab_size, rows, results);
  context_.enter();
  if (reserving_) return reserve_sampling(rows.size(), vocab_size);
  sample_on_host(logits, vocab_size, rows, results);
  SampleBatch batch;
  batch.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!on_device(rows[i])) continue;
    batch.add(rows[i], vocab_size, &results[i]);
    if (batch.list_bytes() < kListBytes) continue;
    sample_batch(logits, vocab_size, batch);
    batch = {};
  }
  if (!batch.rows.empty()) sample_batch(logits, vocab_size, batch);
}

// The row that fills a batch may bring lists over all of the vocabulary.
void CudaBackend::reserve_sampling(size_t rows, int32_t vocab_size) {
  constexpr size_t kPieces = 8, kAlignment = 256;
  const size_t outputs = output_bytes(rows, kMaxDeviceLogprobs);
  sample_arena_.reserve(kListBytes + static_cast<size_t>(vocab_size) * kMostBytesPerId +
                        mask_words(vocab_size) * sizeof(uint32_t) + rows * sizeof(SampleRowArgs) +
                        kPieces * kAlignment);
  grow(sample_workspace_, sample_workspace_bytes(static_cast<int64_t>(rows), vocab_size));
  pinned_results(outputs);
  // Of two steps, and of a third that begins.
  std::array<Draw, 3> draws;
  for (Draw& draw : draws) draw = spare_draw(outputs);
  for (Draw& draw : draws) spare_draws_.push_back(std::move(draw));
}

void CudaBackend::queue_samples(const TensorView& logits, int32_t vocab_size, SampleBatch& batch,
                                const SampleOutput& output) {
  sample_arena_.begin();
  const uint32_t* mask = sample_arena_.put(std::span<const uint32_t>(batch.allowed));
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    if (!batch.guided[i]) continue;
    batch.rows[i].allowed = mask;
    mask += mask_words(vocab_size);
  }
  const size_t count = batch.rows.size();
  void* const workspace =
      grow(sample_workspace_, sample_workspace_bytes(static_cast<int64_t>(count), vocab_size));
  const SampleArgs args{.logits = static_cast<float*>(logits.data),
                        .stride = logits.row_stride,
                        .vocab_size = vocab_size,
                        .rows = sample_arena_.put(std::span<const SampleRowArgs>(batch.rows)),
                        .num_rows = static_cast<int64_t>(count),
                        .spreads = std::ranges::any_of(batch.rows, needs_total),
                        .bias = sample_arena_.put(std::span<const LogitBias>(batch.bias)),
                        .tokens = sample_arena_.put(std::span<const int32_t>(batch.tokens)),
                        .seen = sample_arena_.put(std::span<const SeenToken>(batch.seen)),
                        .saved = sample_arena_.take<float>(batch.edits()),
                        .num_bias = static_cast<int32_t>(batch.bias.size()),
                        .num_tokens = static_cast<int32_t>(batch.tokens.size()),
                        .workspace = workspace,
                        .results = output.results,
                        .top = output.top,
                        .max_logprobs = output.max_logprobs,
                        .drawn = output.drawn};
  sample_arena_.flush();
  launch(cuda::sample, args);
}

// Ids and what was asked for beside them: kernels write to the host's memory, and one wait.
void CudaBackend::sample_batch(const TensorView& logits, int32_t vocab_size, SampleBatch& batch) {
  const size_t count = batch.targets.size();
  std::byte* const output = pinned_results(output_bytes(count, batch.most_logprobs));
  queue_samples(logits, vocab_size, batch, output_in(output, count, batch.most_logprobs));
  context_.wait();
  expect_answers();
  read_samples(output, batch.targets, batch.most_logprobs);
}

int32_t CudaBackend::most_logprobs_ahead() const { return kMaxDeviceLogprobs; }

void CudaBackend::begin_sample(TensorView logits, int32_t vocab_size,
                               std::span<const SampleRow> rows) {
  const std::vector<SampleResult> unused(rows.size());
  check_sample(logits, vocab_size, rows, unused);
  HEADRACE_CHECK(num_drawn_ + rows.size() <= kMostDrawn, num_drawn_, " + ", rows.size());
  context_.enter();
  if (step_draw_) return begin_drawn(rows);
  for (const SampleRow& row : rows) HEADRACE_CHECK(on_device(row), row.num_logprobs);
  const int32_t most_logprobs = most_logprobs_of(rows);
  draws_.push_back(spare_draw(output_bytes(rows.size(), most_logprobs)));
  Draw& draw = draws_.back();
  draw.rows = rows.size();
  draw.most_logprobs = most_logprobs;
  try {
    SampleOutput output = output_in(draw.output.data(), rows.size(), most_logprobs);
    output.drawn = static_cast<int32_t*>(drawn_.data) + num_drawn_;
    SampleBatch batch;
    batch.reserve(rows.size());
    for (const SampleRow& row : rows) {
      batch.add(row, vocab_size, nullptr);
      const bool is_last = &row == &rows.back();
      if (!is_last && batch.list_bytes() < kListBytes) continue;
      queue_samples(logits, vocab_size, batch, output);
      output.skip(batch.rows.size());
      batch = {};
    }
    num_drawn_ += rows.size();
    draw.done.record(context_.stream());
  } catch (...) {  // kernels may be under way: what they write to must not go
    spare_draws_.push_back(std::move(draw));
    draws_.pop_back();
    throw;
  }
}

/// One that nobody waits for any more. What the GPU may still write to it comes before what it will
/// be used for.
CudaBackend::Draw CudaBackend::spare_draw(size_t bytes) {
  Draw draw;
  if (!spare_draws_.empty()) {
    draw = std::move(spare_draws_.back());
    spare_draws_.pop_back();
  }
  if (draw.done.empty()) draw.done = EventHandle(context_);
  if (draw.output.bytes() < bytes) {
    if (draw.output.bytes() > 0) context_.wait();  // for who may still write to it
    draw.output = PinnedBuffer(context_, bytes);
  }
  return draw;
}

void CudaBackend::end_sample(std::span<SampleResult> results) {
  HEADRACE_CHECK(!draws_.empty() && draws_.front().rows == results.size(), results.size());
  context_.enter();
  Draw& draw = spare_draws_.emplace_back(std::move(draws_.front()));
  draws_.pop_front();
  draw.done.wait("waiting for a step");
  expect_answers();
  std::vector<SampleResult*> targets;
  targets.reserve(results.size());
  for (SampleResult& result : results) targets.push_back(&result);
  read_samples(draw.output.data(), targets, draw.most_logprobs);
}

// More log-probabilities than the device sorts, or sampling that failed its trial: such a row is
// the reference's.
void CudaBackend::sample_on_host(const TensorView& logits, int32_t vocab_size,
                                 std::span<const SampleRow> rows, std::span<SampleResult> results) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (on_device(rows[i])) continue;
    std::vector<float> row(static_cast<size_t>(logits.cols()));
    read_back(logits.row<float>(rows[i].logits_row), row.data(), row.size() * sizeof(float));
    SampleRow own = rows[i];
    own.logits_row = 0;
    reference_sample(TensorView(row.data(), DType::kF32, {1, logits.cols()}), vocab_size, {&own, 1},
                     results.subspan(i, 1));
  }
}

}  // namespace headrace::cuda
