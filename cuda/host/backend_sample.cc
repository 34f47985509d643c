#include <algorithm>
#include <cstring>

#include "backend/cpu/op_checks_attention.h"
#include "backend/cpu/reference/reference_sample.h"
#include "base/check.h"
#include "base/checked_math.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/kernels/sample.h"

namespace headrace::cuda {

namespace {

/// The rows' lists side by side.
struct SampleLists {
  std::vector<SampleRowArgs> rows;
  std::vector<LogitBias> bias;
  std::vector<int32_t> tokens;
  std::vector<SeenToken> seen;
  std::vector<uint32_t> allowed;

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

SampleRowArgs plain_args(const SampleRow& row) {
  return {.seed = row.seed,
          .position = row.position,
          .logits_row = row.logits_row,
          .forced_token = row.forced_token,
          .top_k = row.top_k,
          .temperature = row.temperature,
          .top_p = row.top_p,
          .min_p = row.min_p,
          .repetition_penalty = row.repetition_penalty,
          .frequency_penalty = row.frequency_penalty,
          .presence_penalty = row.presence_penalty,
          .num_logprobs = row.num_logprobs,
          .logprobs_mode = row.logprobs_mode,
          .greedy = row.greedy,
          .temperature_scaled_logprobs = row.temperature_scaled_logprobs,
          .top_p_normalized_logprobs = row.top_p_normalized_logprobs};
}

/// Words of one row's bit mask.
size_t mask_words(int32_t vocab_size) { return static_cast<size_t>(ceil_div(vocab_size, 32)); }

void append_row(const SampleRow& row, int32_t vocab_size, SampleLists& lists) {
  SampleRowArgs args = plain_args(row);
  args.bias = SampleLists::append(lists.bias, row.bias);
  args.masked = SampleLists::append_once(lists.tokens, row.masked);
  args.banned = SampleLists::append_once(lists.tokens, row.banned);
  args.seen = SampleLists::append(lists.seen, row.seen);
  if (row.allowed != nullptr) {
    SampleLists::append(lists.allowed,
                        std::span<const uint32_t>(row.allowed, mask_words(vocab_size)));
  }
  lists.rows.push_back(args);
}

bool on_device(const SampleRow& row) { return row.num_logprobs <= kMaxDeviceLogprobs; }

}  // namespace

void CudaBackend::sample(TensorView logits, int32_t vocab_size, std::span<const SampleRow> rows,
                         std::span<SampleResult> results) {
  check_sample(logits, vocab_size, rows, results);
  context_.enter();
  sample_on_host(logits, vocab_size, rows, results);
  SampleLists lists;
  std::vector<SampleResult*> targets;
  int32_t most_logprobs = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!on_device(rows[i])) continue;
    append_row(rows[i], vocab_size, lists);
    targets.push_back(&results[i]);
    most_logprobs = std::max(most_logprobs, rows[i].num_logprobs);
  }
  if (targets.empty()) return;

  const uint32_t* mask = arena_.put(std::span<const uint32_t>(lists.allowed));
  size_t next = 0;
  for (const SampleRow& row : rows) {
    if (!on_device(row)) continue;
    if (row.allowed != nullptr) {
      lists.rows[next].allowed = mask;
      mask += mask_words(vocab_size);
    }
    ++next;
  }
  const size_t top_count = targets.size() * static_cast<size_t>(most_logprobs);
  const size_t results_bytes = targets.size() * sizeof(SampleRowResult);
  auto* const output = arena_.take<std::byte>(round_up(results_bytes, alignof(std::max_align_t)) +
                                              top_count * sizeof(TokenLogprob));
  auto* const device_results = reinterpret_cast<SampleRowResult*>(output);
  auto* const device_top =
      reinterpret_cast<TokenLogprob*>(output + round_up(results_bytes, alignof(std::max_align_t)));
  const SampleArgs args{
      .logits = static_cast<float*>(logits.data),
      .stride = logits.row_stride,
      .vocab_size = vocab_size,
      .rows = arena_.put(std::span<const SampleRowArgs>(lists.rows)),
      .num_rows = static_cast<int64_t>(targets.size()),
      .bias = arena_.put(std::span<const LogitBias>(lists.bias)),
      .tokens = arena_.put(std::span<const int32_t>(lists.tokens)),
      .seen = arena_.put(std::span<const SeenToken>(lists.seen)),
      .saved = arena_.take<float>(lists.bias.size() + lists.tokens.size() + lists.seen.size()),
      .num_bias = static_cast<int32_t>(lists.bias.size()),
      .num_tokens = static_cast<int32_t>(lists.tokens.size()),
      .results = device_results,
      .top = device_top,
      .max_logprobs = most_logprobs};
  arena_.flush();
  cuda::sample(args, context_.stream());
  read_samples(output, targets, most_logprobs);
}

// Ids and what was asked for beside them: one copy, one wait.
void CudaBackend::read_samples(const std::byte* output, std::span<SampleResult* const> targets,
                               int32_t most_logprobs) {
  const size_t results_bytes =
      round_up(targets.size() * sizeof(SampleRowResult), alignof(std::max_align_t));
  const size_t bytes =
      results_bytes + targets.size() * static_cast<size_t>(most_logprobs) * sizeof(TokenLogprob);
  std::byte* const host = pinned_results(bytes);
  context_.check(
      context_.api().copy(host, output, bytes, CopyKind::kDeviceToHost, context_.stream()),
      "reading tokens");
  context_.wait();
  const auto* found = reinterpret_cast<const SampleRowResult*>(host);
  const auto* top = reinterpret_cast<const TokenLogprob*>(host + results_bytes);
  for (size_t i = 0; i < targets.size(); ++i, top += most_logprobs) {
    SampleResult& result = *targets[i];
    result.token = found[i].token;
    result.logprob = found[i].logprob;
    result.rank = found[i].rank;
    HEADRACE_CHECK(found[i].num_top >= 0 && found[i].num_top <= most_logprobs, found[i].num_top);
    result.top.assign(top, top + found[i].num_top);
  }
}

// More log-probabilities than the device sorts: such a row is the reference's.
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
