// sample() in the emulation, against the CPU's reference.

#include "cuda/kernels/sample/sample.h"

#include "device_data.h"
#include "parity/sample/sample_harness.h"

namespace headrace::cuda {
namespace {

using test::expect_logprob;
using test::is_close_call;
using test::kInf;
using test::kNan;
using test::RandomCase;

/// Rows as the host side uploads them: lists behind each other, ids once in each.
class SampleRun {
 public:
  SampleRun(int32_t vocab_size, int64_t stride) : vocab_size_(vocab_size), stride_(stride) {}

  void add(const std::vector<float>& logits, const SampleRow& row) {
    SampleRowArgs args{.seed = row.seed,
                       .position = row.position,
                       .logits_row = static_cast<int64_t>(rows_.size()),
                       .allowed = allowed_of(row),
                       .forced_token = row.forced_token,
                       .top_k = row.top_k,
                       .temperature = row.temperature,
                       .top_p = row.top_p,
                       .min_p = row.min_p,
                       .repetition_penalty = row.repetition_penalty,
                       .frequency_penalty = row.frequency_penalty,
                       .presence_penalty = row.presence_penalty,
                       .num_logprobs = std::min(row.num_logprobs, kMaxDeviceLogprobs),
                       .logprobs_mode = row.logprobs_mode,
                       .greedy = row.greedy,
                       .temperature_scaled_logprobs = row.temperature_scaled_logprobs,
                       .top_p_normalized_logprobs = row.top_p_normalized_logprobs};
    args.bias = append(bias_, row.bias);
    args.masked = append(tokens_, row.masked);
    args.banned = append(tokens_, row.banned);
    args.seen = append(seen_, row.seen);
    rows_.push_back(args);
    logits_.insert(logits_.end(), logits.begin(), logits.end());
  }

  std::vector<SampleResult> run() {
    const DeviceArray<float> saved(bias_.size() + tokens_.size() + seen_.size());
    const DeviceArray<SampleRowArgs> rows(rows_);
    const DeviceArray<LogitBias> bias(bias_);
    const DeviceArray<int32_t> tokens(tokens_);
    const DeviceArray<SeenToken> seen(seen_);
    int32_t max_logprobs = 0;
    for (const auto& row : rows_) max_logprobs = std::max(max_logprobs, row.num_logprobs);
    const DeviceArray<SampleRowResult> result_rows(rows_.size());
    const DeviceArray<std::byte> workspace(
        sample_workspace_bytes(static_cast<int64_t>(rows_.size()), vocab_size_));
    const DeviceArray<TokenLogprob> top_rows(rows_.size() * static_cast<size_t>(max_logprobs));
    // Vector loads need aligned rows, where the stride allows it.
    const DeviceMatrix logits(DType::kF32, static_cast<int64_t>(rows_.size()), stride_, logits_);
    sample({.logits = static_cast<float*>(logits.data()),
            .stride = stride_,
            .vocab_size = vocab_size_,
            .rows = rows.data(),
            .num_rows = static_cast<int64_t>(rows_.size()),
            .spreads = std::ranges::any_of(rows_, needs_total),
            .bias = bias.data(),
            .tokens = tokens.data(),
            .seen = seen.data(),
            .saved = saved.data(),
            .num_bias = static_cast<int32_t>(bias_.size()),
            .num_tokens = static_cast<int32_t>(tokens_.size()),
            .workspace = workspace.data(),
            .results = result_rows.data(),
            .top = top_rows.data(),
            .max_logprobs = max_logprobs},
           nullptr);
    const auto results = result_rows.values();
    const auto top = top_rows.values();
    finite_.clear();
    for (const SampleRowResult& result : results) finite_.push_back(result.finite);
    std::vector<SampleResult> out;
    for (size_t i = 0; i < results.size(); ++i) {
      const auto from = top.begin() + static_cast<ptrdiff_t>(i) * max_logprobs;
      out.push_back({results[i].finite,
                     results[i].token,
                     results[i].logprob,
                     results[i].rank,
                     {from, from + results[i].num_top}});
    }
    return out;
  }

  /// SampleRowResult::finite of the last run.
  const std::vector<bool>& finite() const { return finite_; }

 private:
  static int32_t id(int32_t token) { return token; }
  static int32_t id(const LogitBias& bias) { return bias.token; }
  static int32_t id(const SeenToken& seen) { return seen.token; }

  const uint32_t* allowed_of(const SampleRow& row) {
    if (row.allowed == nullptr) return nullptr;
    const auto words = static_cast<size_t>(vocab_size_ + 31) / 32;
    allowed_.emplace_back(std::span(row.allowed, words));
    return allowed_.back().data();
  }

  template <class T>
  static SampleRange append(std::vector<T>& all, std::span<const T> list) {
    const auto begin = static_cast<int32_t>(all.size());
    for (const T& entry : list) {
      const auto same = [&](const T& other) { return id(other) == id(entry); };
      if (std::none_of(all.begin() + begin, all.end(), same)) all.push_back(entry);
    }
    return {begin, static_cast<int32_t>(all.size())};
  }

  int32_t vocab_size_;
  int64_t stride_;
  std::vector<SampleRowArgs> rows_;
  std::vector<float> logits_;
  std::vector<LogitBias> bias_;
  std::vector<int32_t> tokens_;
  std::vector<SeenToken> seen_;
  std::vector<DeviceArray<uint32_t>> allowed_;
  std::vector<bool> finite_;
};

SampleResult sample_one(const std::vector<float>& logits, int32_t vocab_size,
                        const SampleRow& row) {
  SampleRun run(vocab_size, static_cast<int64_t>(logits.size()));
  run.add(logits, row);
  return run.run()[0];
}

bool is_finite(const std::vector<float>& logits, int32_t vocab_size, const SampleRow& row) {
  SampleRun run(vocab_size, static_cast<int64_t>(logits.size()));
  run.add(logits, row);
  run.run();
  return run.finite()[0];
}

/// What the reference draws must be what the device does; there is no close call.
void expect_token(const std::vector<float>& logits, const SampleRow& row, const std::string& what) {
  const auto vocab_size = static_cast<int32_t>(logits.size());
  SampleResult want;
  std::vector<float> copy = logits;
  reference_sample(TensorView(copy.data(), DType::kF32, {1, vocab_size}), vocab_size, {&row, 1},
                   {&want, 1});
  EXPECT_EQ(sample_one(logits, vocab_size, row).token, want.token) << what;
}

/// A case whose lists name each id once, so that both sides see the same.
RandomCase distinct_case(int32_t vocab_size, int32_t padded, uint32_t seed) {
  RandomCase c(vocab_size, padded, seed);
  std::vector<LogitBias> bias;
  for (const LogitBias& b : c.bias) {
    const auto same = [&](const LogitBias& other) { return other.token == b.token; };
    if (std::none_of(bias.begin(), bias.end(), same)) bias.push_back(b);
  }
  c.bias = bias;
  c.row.bias = c.bias;
  c.row.num_logprobs = std::min(c.row.num_logprobs, kMaxDeviceLogprobs);
  return c;
}

class Sample : public KernelTest {};

TEST_P(Sample, AgreesWithTheReference) {
  int close_calls = 0;
  for (const int32_t vocab_size : {1, 3, 37, 300, 5000, 20011}) {
    const int cases = vocab_size < 1000 ? 60 : vocab_size < 10000 ? 40 : 12;
    for (int i = 0; i < cases; ++i) {
      const auto seed = static_cast<uint32_t>(vocab_size * 1000 + i);
      RandomCase c = distinct_case(vocab_size, vocab_size + i % 5, seed);
      c.row.allowed = c.allowed.empty() ? nullptr : c.allowed.data();
      c.row.masked = c.masked;
      c.row.banned = c.banned;
      c.row.seen = c.seen;
      const SampleResult out = sample_one(c.logits, vocab_size, c.row);
      SampleResult want;
      std::vector<float> logits = c.logits;
      const auto padded = static_cast<int64_t>(logits.size());
      reference_sample(TensorView(logits.data(), DType::kF32, {1, padded}), vocab_size, {&c.row, 1},
                       {&want, 1});
      const std::string what = str_cat("vocabulary ", vocab_size, " seed ", seed);
      if (out.token != want.token) {
        ASSERT_TRUE(is_close_call(c, vocab_size, out.token, want.token))
            << what << ": " << out.token << " and " << want.token;
        ++close_calls;
        continue;
      }
      if (c.row.num_logprobs < 0) continue;
      expect_logprob(out.logprob, want.logprob, what);
      ASSERT_EQ(out.rank, want.rank) << what;
      ASSERT_EQ(out.top.size(), want.top.size()) << what;
      for (size_t t = 0; t < out.top.size(); ++t) {
        ASSERT_EQ(out.top[t].token, want.top[t].token) << what << " place " << t;
        expect_logprob(out.top[t].logprob, want.top[t].logprob, what);
      }
    }
  }
  EXPECT_LE(close_calls, 1);
}

TEST_P(Sample, BitsDependOnTheRowAlone) {
  constexpr int32_t kVocab = 5021, kRows = 5;
  std::vector<RandomCase> cases;
  cases.reserve(kRows);
  SampleRun together(kVocab, kVocab);
  for (uint32_t i = 0; i < kRows; ++i) {
    cases.emplace_back(kVocab, kVocab, 100 + i);
    cases.back().row.num_logprobs = 5;
    together.add(cases.back().logits, cases.back().row);
  }
  const auto out = together.run();
  for (size_t i = 0; i < kRows; ++i) {
    const SampleResult alone = sample_one(cases[i].logits, kVocab, cases[i].row);
    EXPECT_EQ(alone.token, out[i].token);
    EXPECT_EQ(alone.logprob, out[i].logprob);
    for (size_t t = 0; t < alone.top.size(); ++t) {
      EXPECT_EQ(alone.top[t].token, out[i].top[t].token);
      EXPECT_EQ(alone.top[t].logprob, out[i].top[t].logprob);
    }
  }
}

// More tokens at the maximum than there are candidates: the whole row is searched.
TEST_P(Sample, TopPOfAFlatDistributionKeepsTheLowerIds) {
  constexpr int32_t kVocab = 8192;
  const std::vector<float> logits(kVocab, 0.25f);
  for (uint64_t i = 0; i < 8; ++i) {
    SampleRow row;
    row.position = i;
    row.top_p = 0.5f;
    const double u = static_cast<double>(philox_uniform(0, i));
    EXPECT_EQ(sample_one(logits, kVocab, row).token, static_cast<int32_t>(u * (kVocab / 2)));
    row.top_p = 1.0f;
    row.top_k = 4;
    EXPECT_EQ(sample_one(logits, kVocab, row).token, static_cast<int32_t>(u * 4));
  }
}

TEST_P(Sample, TiesGoToTheLowerId) {
  constexpr int32_t kVocab = 2000;
  std::vector<float> logits(kVocab, -1.0f);
  for (const size_t t : {901u, 1000u, 1999u}) logits[t] = 2.5f;
  SampleRow greedy;
  greedy.greedy = true;
  greedy.num_logprobs = 5;
  const SampleResult result = sample_one(logits, kVocab, greedy);
  EXPECT_EQ(result.token, 901);
  EXPECT_EQ(result.rank, 1);
  const int32_t want[] = {901, 1000, 1999, 0, 1};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(result.top[i].token, want[i]);
}

TEST_P(Sample, NothingLeftFallsBackToTheSmallestAllowed) {
  const std::vector<float> nothing = {kNan, -kInf, -kInf, kNan, 7.0f};
  for (const bool greedy : {false, true}) {
    SampleRow row;
    row.greedy = greedy;
    row.num_logprobs = 2;
    const SampleResult result = sample_one(nothing, 4, row);
    EXPECT_EQ(result.token, 0);
    EXPECT_EQ(result.logprob, -kInf);
    EXPECT_EQ(result.rank, 1);
    ASSERT_EQ(result.top.size(), 2u);
    EXPECT_EQ(result.top[1].token, 1);
    const uint32_t allowed = 0b1100, none = 0;
    row.allowed = &allowed;
    EXPECT_EQ(sample_one(nothing, 4, row).token, 2);
    row.allowed = &none;
    EXPECT_EQ(sample_one(nothing, 4, row).token, 0);
  }
}

// Rows of several slices, the best tokens all in one of them, spread over all, or next to each
// other; the last slice ends in the middle of a quad.
TEST_P(Sample, FindsTheBestWhereverTheyLie) {
  constexpr int32_t kVocab = 2 * 8192 + 1239;
  std::vector<float> rising(kVocab), spread(kVocab), lumps(kVocab);
  for (int32_t t = 0; t < kVocab; ++t) {
    const auto i = static_cast<size_t>(t);
    rising[i] = static_cast<float>(t) * 0x1p-9f;
    spread[i] = static_cast<float>(t * 7919 % kVocab) * 0x1p-10f;
    lumps[i] = t % 4096 < 40 ? 10.0f + static_cast<float>(t % 40) * 0.125f : spread[i] * 0.25f;
  }
  SampleRow row;
  for (const int32_t top_k : {0, 50, 64, 65, 700}) {
    for (const float top_p : {1.0f, 0.7f}) {
      row.position += 1;
      row.top_k = top_k;
      row.top_p = top_p;
      row.temperature = top_k == 64 ? 1.0f : 0.8f;
      const std::string what = str_cat("top-k ", top_k, ", top-p ", top_p);
      expect_token(rising, row, what + ", rising");
      expect_token(spread, row, what + ", spread");
      expect_token(lumps, row, what + ", in lumps");
    }
  }
}

// Tokens that no list has matter: all slices together find the draw. Beside each other and with
// log-probabilities, whose token then isn't listed either.
TEST_P(Sample, DrawsFarFromTheBestAreThoseOfTheReference) {
  constexpr int32_t kVocab = 2 * 8192 + 1239;
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  SampleRun run(kVocab, kVocab + 1);
  std::vector<SampleResult> wanted;
  for (const float spread : {0.02f, 0.6f, 2.0f, 5.0f}) {
    for (const float top_p : {1.0f, 0.95f, 0.6f}) {
      std::vector<float> logits(kVocab + 1);
      for (float& logit : logits) logit = spread * normal(random);
      SampleRow row;
      row.position = wanted.size();
      row.temperature = 0.8f;
      row.top_p = top_p;
      row.num_logprobs = top_p < 0.7f ? 3 : -1;
      run.add(logits, row);
      reference_sample(TensorView(logits.data(), DType::kF32, {1, kVocab + 1}), kVocab, {&row, 1},
                       {&wanted.emplace_back(), 1});
    }
  }
  const auto out = run.run();
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(out[i].token, wanted[i].token) << i;
    EXPECT_EQ(out[i].rank, wanted[i].rank) << i;
    expect_logprob(out[i].logprob, wanted[i].logprob, str_cat("row ", i));
    ASSERT_EQ(out[i].top.size(), wanted[i].top.size()) << i;
    for (size_t t = 0; t < out[i].top.size(); ++t) {
      EXPECT_EQ(out[i].top[t].token, wanted[i].top[t].token) << i;
    }
  }
}

// Division by the temperature makes neighbours equal: the lower id is first, listed or not.
TEST_P(Sample, LogitsThatDivisionMakesEqualAreInTheOrderOfIds) {
  constexpr int32_t kVocab = 8192 + 100;
  std::vector<float> logits(kVocab);
  for (int32_t t = 0; t < kVocab; ++t) {
    logits[static_cast<size_t>(t)] = 1.0f + static_cast<float>(t % 256) * 0x1p-23f;
  }
  SampleRow row;
  row.temperature = 1.75f;
  for (const int32_t top_k : {1, 50, 200}) {
    row.top_k = top_k;
    for (row.position = 0; row.position < 4; ++row.position) {
      expect_token(logits, row, str_cat("top-k ", top_k, ", position ", row.position));
    }
  }
}

TEST_P(Sample, SaysWhichRowsAreNotFinite) {
  constexpr int32_t kVocab = 8192 + 7;
  const std::vector<float> good(kVocab + 1, 1.0f);
  SampleRow row;
  row.top_k = 3;
  EXPECT_TRUE(is_finite(good, kVocab, row));
  for (const bool greedy : {false, true}) {
    row.greedy = greedy;
    for (const int32_t at : {0, 5000, kVocab - 1}) {
      std::vector<float> logits = good;
      logits[static_cast<size_t>(at)] = kNan;
      EXPECT_FALSE(is_finite(logits, kVocab, row)) << at;
      logits[static_cast<size_t>(at)] = kInf;
      EXPECT_FALSE(is_finite(logits, kVocab, row)) << at;
      logits[static_cast<size_t>(at)] = -kInf;
      EXPECT_TRUE(is_finite(logits, kVocab, row)) << at;
    }
    std::vector<float> logits = good;
    logits[kVocab] = kNan;  // not of the vocabulary
    EXPECT_TRUE(is_finite(logits, kVocab, row));
    EXPECT_FALSE(is_finite(std::vector<float>(kVocab, -kInf), kVocab, row));
  }
}

// What the request's own edits make of the logits doesn't count.
TEST_P(Sample, FiniteIsAskedOfTheModelsLogits) {
  constexpr int32_t kVocab = 40;
  std::vector<float> logits(kVocab, 1.0f);
  const LogitBias bias{7, kInf};
  SampleRow row;
  row.bias = {&bias, 1};
  EXPECT_TRUE(is_finite(logits, kVocab, row));
  EXPECT_EQ(sample_one(logits, kVocab, row).token, 7);
  const uint32_t none[] = {0, 0};
  row.allowed = none;
  EXPECT_TRUE(is_finite(logits, kVocab, row));
  logits[3] = kNan;
  EXPECT_FALSE(is_finite(logits, kVocab, row));
}

// A bias on a NaN that another warp has yet to see.
TEST(SampleOrder, EditsComeBehindTheLookForNan) {
  set_device_schedule(kWarpsAhead);
  constexpr int32_t kVocab = 1000;
  for (const int32_t at : {3, 130, 999}) {
    std::vector<float> logits(kVocab, 1.0f);
    logits[static_cast<size_t>(at)] = kNan;
    const LogitBias bias{at, 1.0f};
    SampleRow row;
    row.bias = {&bias, 1};
    EXPECT_FALSE(is_finite(logits, kVocab, row)) << at;
  }
  set_device_schedule(0);
}

HEADRACE_KERNEL_TESTS(Sample);

}  // namespace
}  // namespace headrace::cuda
