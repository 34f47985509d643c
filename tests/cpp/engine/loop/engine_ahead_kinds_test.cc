// Requests of every kind in steps that begin before the results of the ones before them are there:
// those whose draws follow all tokens before them, and those that steps must wait for.

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <string>

#include "cpp/engine/loop/expect_idle.h"
#include "fakes/fake_constraint.h"
#include "fakes/fake_engine.h"

namespace headrace {
namespace {

using testing::expect_idle;
using testing::fake_greedy;
using testing::FakeConstraint;
using testing::FakeEngine;
using testing::Following;
using testing::greedy;
using testing::read_all;
using Ids = std::vector<int32_t>;

constexpr int32_t kTokens = 30;

ModelOptions options_of() {
  ModelOptions options = FakeEngine::default_options();
  options.max_num_seqs = 16;
  options.max_prefill_chunk = 16;
  options.max_loras = 2;
  return options;
}

FakeEngine make_engine(bool ahead) {
  FakeEngine fake(options_of(), {.max_logit_rows = 5, .late = true, .ahead = ahead});
  fake.engine->load_lora("m", "one", "1");
  fake.engine->load_lora("m", "two", "2");
  return fake;
}

/// Every other token, by turns, and the end behind `count` of them.
Following every_other_of(std::span<const int32_t> output, size_t count) {
  Following out;
  out.may_end = output.size() >= count;
  for (auto t = static_cast<int32_t>(output.size() % 2); t < 50 && !out.may_end; t += 2) {
    out.tokens.push_back(t);
  }
  return out;
}

std::shared_ptr<TokenConstraint> every_other(size_t count) {
  return FakeConstraint::make(
      [count](std::span<const int32_t> output) { return every_other_of(output, count); });
}

struct Kind {
  const char* name;
  RequestOptions request;
};

std::vector<Kind> kinds() {
  std::vector<Kind> out;
  const auto add = [&](const char* name, const auto& change) {
    const auto i = static_cast<int32_t>(out.size());
    RequestOptions request;
    request.prompt_token_ids = Ids(static_cast<size_t>(3 + 7 * i), 3 + i % 2);
    request.sampling = greedy(kTokens);
    change(request);
    out.push_back({name, std::move(request)});
  };
  add("plain", [](RequestOptions&) {});
  add("repetition", [](RequestOptions& r) { r.sampling.repetition_penalty = 1.3f; });
  add("frequency", [](RequestOptions& r) {
    r.sampling.frequency_penalty = 0.5f;
    r.sampling.temperature = 1;
    r.sampling.seed = 3;
  });
  add("presence", [](RequestOptions& r) { r.sampling.presence_penalty = 0.7f; });
  add("n-grams", [](RequestOptions& r) {
    r.sampling.no_repeat_ngram_size = 2;
    r.sampling.logprobs = 2;
  });
  add("bad words", [](RequestOptions& r) {
    const Ids all = fake_greedy(r.prompt_token_ids, kTokens);
    r.sampling.bad_words = {{all[3], all[4]}, {all[8], all[9], all[10]}};
  });
  add("guided", [](RequestOptions& r) { r.constraint = every_other(1000); });
  add("prompt log-probabilities", [](RequestOptions& r) { r.sampling.prompt_logprobs = 2; });
  add("adapter", [](RequestOptions& r) { r.lora_name = "one"; });
  add("all at once", [](RequestOptions& r) {
    r.lora_name = "two";
    r.constraint = every_other(1000);
    r.sampling.repetition_penalty = 1.2f;
    r.sampling.prompt_logprobs = 1;
    r.sampling.min_tokens = 4;
  });
  return out;
}

void expect_same(const Output& got, const Output& want, const char* name) {
  EXPECT_EQ(got.error_message, "") << name;
  EXPECT_EQ(got.token_ids, want.token_ids) << name;
  EXPECT_EQ(got.finish_reason, want.finish_reason) << name;
  ASSERT_EQ(got.logprobs.size(), want.logprobs.size()) << name;
  for (size_t i = 0; i < want.logprobs.size(); ++i) {
    EXPECT_EQ(got.logprobs[i].top, want.logprobs[i].top) << name;
  }
  ASSERT_EQ(got.prompt_logprobs.size(), want.prompt_logprobs.size()) << name;
  for (size_t i = 0; i < want.prompt_logprobs.size(); ++i) {
    EXPECT_EQ(got.prompt_logprobs[i].top, want.prompt_logprobs[i].top) << name;
  }
}

TEST(EngineAheadKinds, EachRunsAheadAndGivesTheSame) {
  FakeEngine waiting = make_engine(false), ahead = make_engine(true);
  std::vector<Output> want;
  for (const Kind& kind : kinds()) {
    want.push_back(read_all(waiting.engine->submit("m", kind.request).results()));
    EXPECT_EQ(want.back().token_ids.size(), static_cast<size_t>(kTokens)) << kind.name;
    const int steps = ahead.control->collected, covered = ahead.control->covered;
    expect_same(read_all(ahead.engine->submit("m", kind.request).results()), want.back(),
                kind.name);
    const int results = ahead.control->collected - steps;
    // A mask may take long on a busy machine.
    const int least = kind.request.constraint == nullptr ? results - 1 : results / 2;
    EXPECT_GE(ahead.control->covered - covered, least) << kind.name;
  }
  const int steps = ahead.control->collected, covered = ahead.control->covered;
  ahead.control->hold();
  std::vector<Request> requests;
  for (const Kind& kind : kinds()) requests.push_back(ahead.engine->submit("m", kind.request));
  ahead.control->resume();
  for (size_t i = 0; i < want.size(); ++i) {
    expect_same(read_all(requests[i].results()), want[i], kinds()[i].name);
  }
  EXPECT_GE(ahead.control->covered - covered, (ahead.control->collected - steps) / 2) << "together";
  expect_idle(ahead);
}

TEST(EngineAheadKinds, AGuideThatEndsOrFailsEndsItsRequestAlone) {
  FakeEngine fake = make_engine(true);
  const auto failing = FakeConstraint::make([](std::span<const int32_t> output) {
    if (output.size() == 6) throw Error(ErrorCode::kInvalidArgument, "no token fits");
    return Following{{7, 8}, false};
  });
  fake.control->hold();
  RequestOptions ends, fails, stops;
  ends.constraint = every_other(9);
  fails.constraint = failing;
  stops.constraint = every_other(11);
  SamplingParams with_eos = greedy(40);
  with_eos.ignore_eos = false;
  Request a = fake.submit({1}, greedy(40)), b = fake.submit({2}, greedy(40), ends);
  Request c = fake.submit({3}, greedy(40), fails), d = fake.submit({4}, with_eos, stops);
  fake.control->resume();
  const Output complete = read_all(b.results()), failed = read_all(c.results());
  EXPECT_EQ(complete.finish_reason, FinishReason::kStop);
  EXPECT_EQ(complete.token_ids.size(), 9u);
  EXPECT_EQ(failed.finish_reason, FinishReason::kError);
  EXPECT_NE(failed.error_message.find("no token fits"), std::string::npos);
  EXPECT_EQ(failed.token_ids.size(), 6u);
  const Output stopped = read_all(d.results());
  EXPECT_EQ(stopped.finish_reason, FinishReason::kStop);
  EXPECT_EQ(stopped.token_ids.size(), 12u);
  EXPECT_EQ(read_all(a.results()).token_ids, fake_greedy({1}, 40));
  expect_idle(fake);
}

// Its mask doesn't come before the others have all of their tokens.
TEST(EngineAheadKinds, ASlowGuideStopsNobodyElse) {
  for (const size_t slow_at : {0u, 4u}) {
    FakeEngine fake = make_engine(true);
    RequestOptions alone, slow;
    alone.constraint = every_other(1000);
    const Ids want = read_all(fake.submit({5}, greedy(20), alone).results()).token_ids;
    std::atomic<bool> goes_on{false};
    slow.constraint = FakeConstraint::make([&](std::span<const int32_t> output) {
      if (output.size() == slow_at) goes_on.wait(false);
      return every_other_of(output, 1000);
    });
    Request waits = fake.submit({5}, greedy(20), slow);
    std::vector<Request> others;
    for (int32_t i = 0; i < 4; ++i) {
      RequestOptions rest;
      if (i == 3) rest.lora_name = "one";
      others.push_back(fake.submit({i, 2}, greedy(60), rest));
    }
    for (int32_t i = 0; i < 4; ++i) {
      EXPECT_EQ(read_all(others[static_cast<size_t>(i)].results()).token_ids,
                fake_greedy({i, 2}, 60, 50, i == 3 ? 1 : 0));
    }
    Request cancelled = fake.submit({6}, greedy(20), slow);
    cancelled.cancel();
    EXPECT_EQ(read_all(cancelled.results()).finish_reason, FinishReason::kAbort);
    EXPECT_LE(waits.results().stats().generated_tokens, static_cast<int32_t>(slow_at));
    goes_on = true;
    goes_on.notify_all();
    EXPECT_EQ(read_all(waits.results()).token_ids, want);
    expect_idle(fake);
  }
}

TEST(EngineAheadKinds, AnAdapterGoesWhenNoStepHasItsRows) {
  FakeEngine fake = make_engine(true);
  Request busy = fake.submit({1}, greedy(200));
  for (int32_t rank = 2; rank < 12; ++rank) {
    const Ids all = fake_greedy({9}, 20, 50, rank);
    SamplingParams params = greedy(40);
    params.stop_token_ids = {all[7]};  // its end is found when its next row is under way
    const auto end = std::ranges::find(all, all[7]) - all.begin();
    const Output out = read_all(fake.submit({9}, params, {.lora_name = "two"}).results());
    EXPECT_EQ(out.token_ids, Ids(all.begin(), all.begin() + end + 1));
    fake.engine->unload_lora("m", "two");
    fake.engine->load_lora("m", "two", std::to_string(rank + 1));
  }
  EXPECT_EQ(read_all(busy.results()).token_ids, fake_greedy({1}, 200));
  expect_idle(fake);
}

TEST(EngineAheadKinds, StepsWaitForAnEmbeddingAndGoAheadBehindIt) {
  FakeEngine fake = make_engine(true);
  RequestOptions pooled;
  pooled.prompt_token_ids = Ids(40, 6);
  pooled.pooling = PoolingParams{};
  const Output alone = read_all(fake.engine->submit("m", pooled).results());
  fake.control->hold();
  Request a = fake.submit({1}, greedy(100)), b = fake.engine->submit("m", pooled);
  fake.control->resume();
  EXPECT_EQ(read_all(b.results()).pooled, alone.pooled);
  EXPECT_EQ(read_all(a.results()).token_ids, fake_greedy({1}, 100));
  EXPECT_GE(fake.control->covered, 90);
  EXPECT_LE(fake.control->covered, 98) << "three steps have rows of the embedding";
  expect_idle(fake);
}

}  // namespace
}  // namespace headrace
