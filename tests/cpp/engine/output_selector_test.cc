#include "headrace/output_selector.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <thread>

#include "fakes/fake_model.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using testing::FakeEngine;
using Tags = std::vector<int64_t>;

TEST(OutputSelector, TimesOutWhenNothingComes) {
  OutputSelector selector;
  EXPECT_FALSE(selector.wait(0ns));
  EXPECT_FALSE(selector.wait(1ms));
  EXPECT_TRUE(selector.take().empty());
}

TEST(OutputSelector, ServesAWholeBatchFromOneThread) {
  FakeEngine fake;
  OutputSelector selector;
  std::map<int64_t, Request> requests;
  std::map<int64_t, std::vector<int32_t>> tokens;
  for (int32_t i = 0; i < 20; ++i) {
    Request request =
        fake.submit({i, i + 1}, {.temperature = 0, .max_tokens = 5 + i, .ignore_eos = true});
    selector.add(request.results(), i);
    requests.emplace(i, request);
  }
  while (!requests.empty()) {
    ASSERT_TRUE(selector.wait(60s));
    Tags reported = selector.take();
    Tags unique = reported;
    std::sort(unique.begin(), unique.end());
    unique.erase(std::unique(unique.begin(), unique.end()), unique.end());
    EXPECT_EQ(unique.size(), reported.size()) << "each tag once";
    for (int64_t tag : reported) {
      ResultQueue queue = requests.at(tag).results();
      while (const auto out = queue.get_nowait()) {
        auto& all = tokens[tag];
        all.insert(all.end(), out->token_ids.begin(), out->token_ids.end());
        if (!out->finished) continue;
        selector.remove(queue);
        requests.erase(tag);
        break;
      }
    }
  }
  for (int32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(tokens[i], testing::fake_greedy({i, i + 1}, 5 + i)) << i;
  }
}

TEST(OutputSelector, ReportsWhatWasThereBeforeAndNothingRemoved) {
  FakeEngine fake;
  Request early = fake.submit({1}, {.temperature = 0, .max_tokens = 2});
  early.wait();
  OutputSelector selector;
  selector.add(early.results(), 4);
  selector.add(early.results(), 5);
  EXPECT_TRUE(selector.wait(0ns));
  EXPECT_EQ(selector.take(), (Tags{4, 5}));

  fake.control->hold();
  Request late = fake.submit({2}, {.temperature = 0, .max_tokens = 2});
  selector.add(late.results(), 9);
  selector.remove(late.results());
  selector.remove(late.results());
  fake.control->resume();
  late.wait();
  EXPECT_FALSE(selector.wait(0ns));
}

TEST(OutputSelector, MayGoBeforeItsRequests) {
  FakeEngine fake;
  fake.control->hold();
  Request request = fake.submit({1}, {.temperature = 0, .max_tokens = 50});
  {
    OutputSelector selector;
    selector.add(request.results(), 1);
    fake.control->resume();
  }
  request.wait();
  EXPECT_TRUE(request.results().get().finished);
}

}  // namespace
}  // namespace headrace
