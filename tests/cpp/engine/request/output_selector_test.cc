#include "headrace/output_selector.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#include "cpp/engine/expect_error.h"
#include "fakes/fake_engine.h"

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
        selector.remove(tag);
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
  selector.remove(9);
  selector.remove(9);
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

TEST(OutputSelector, AWaitCanBeEnded) {
  OutputSelector selector;
  selector.wake();
  EXPECT_TRUE(selector.wait(std::nullopt)) << "the next one";
  EXPECT_TRUE(selector.take().empty());
  EXPECT_FALSE(selector.wait(0ns)) << "one alone";
  std::jthread waker([&] {
    std::this_thread::sleep_for(1ms);
    selector.wake();
  });
  EXPECT_TRUE(selector.wait(std::nullopt)) << "one under way";
}

bool readable(int fd) {
  pollfd poll_fd{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&poll_fd, 1, 0) == 1;
}

TEST(OutputSelector, ItsDescriptorIsReadableWhileThereAreTags) {
  FakeEngine fake;
  OutputSelector selector;
  Request done = fake.submit({1}, {.temperature = 0, .max_tokens = 2});
  done.wait();
  selector.add(done.results(), 1);
  const int fd = selector.ready_fd();
  EXPECT_EQ(selector.ready_fd(), fd);
  EXPECT_TRUE(readable(fd)) << "made after the report";
  EXPECT_EQ(selector.take(), Tags{1});
  EXPECT_FALSE(readable(fd));

  selector.add(done.results(), 2);
  selector.add(done.results(), 3);
  EXPECT_TRUE(readable(fd));
  selector.remove(2);
  EXPECT_TRUE(readable(fd));
  selector.remove(3);
  EXPECT_FALSE(readable(fd)) << "nothing is left to take";
  EXPECT_TRUE(selector.take().empty());
}

TEST(OutputSelector, MayWaitForTheEndAlone) {
  FakeEngine fake;
  fake.control->hold();
  Request request = fake.submit({1}, {.temperature = 0, .max_tokens = 5, .ignore_eos = true});
  OutputSelector all, end;
  all.add(request.results(), 1);
  end.add(request.results(), 1, OutputSelector::Until::kFinished);
  fake.control->wait_until_held();
  fake.control->step_once();
  ASSERT_TRUE(all.wait(60s));
  EXPECT_FALSE(end.wait(0ns)) << "it goes on";
  fake.control->resume();
  ASSERT_TRUE(end.wait(60s));
  EXPECT_EQ(end.take(), Tags{1});
  EXPECT_EQ(request.results().finish_reason(), FinishReason::kLength);
  EXPECT_EQ(testing::read_all(request.results()).token_ids.size(), 5u) << "nothing was taken";
  end.add(request.results(), 2, OutputSelector::Until::kFinished);
  EXPECT_TRUE(end.wait(0ns)) << "of a finished one at once";
}

TEST(OutputSelector, ATagIsOneRequests) {
  FakeEngine fake;
  Request request = fake.submit({1}, {.temperature = 0, .max_tokens = 2});
  OutputSelector selector;
  selector.add(request.results(), 7);
  testing::expect_error(ErrorCode::kInvalidArgument, {"tag 7"},
                        [&] { selector.add(request.results(), 7); });
  selector.remove(7);
  selector.add(request.results(), 7);
  request.wait();
  EXPECT_TRUE(selector.wait(60s));
}

TEST(OutputSelector, SelectorsAndACallbackServeOneRequestSideBySide) {
  std::atomic<int> calls{0};  // outlives the engine, which may call when the test's checks are over
  FakeEngine fake;
  fake.control->hold();
  Request request = fake.submit({1}, {.temperature = 0, .max_tokens = 3, .ignore_eos = true});
  OutputSelector one, two;
  one.add(request.results(), 1);
  two.add(request.results(), 2);
  request.results().on_output([&] { ++calls; });
  fake.control->resume();
  request.wait();
  EXPECT_TRUE(one.wait(60s));
  EXPECT_TRUE(two.wait(60s));
  while (calls == 0) std::this_thread::yield();
}

TEST(OutputSelector, WhatIsNotTakenIsLeftForTheNextCall) {
  FakeEngine fake;
  OutputSelector selector;
  for (int32_t i = 0; i < 5; ++i) {
    Request request = fake.submit({i + 1}, {.temperature = 0, .max_tokens = 1});
    request.wait();
    selector.add(request.results(), i);
  }
  EXPECT_EQ(selector.take(0), std::vector<int64_t>());
  EXPECT_EQ(selector.take(2), (std::vector<int64_t>{0, 1}));
  EXPECT_TRUE(selector.wait(0s));
  EXPECT_EQ(selector.take(), (std::vector<int64_t>{2, 3, 4}));
  EXPECT_FALSE(selector.wait(0s));
}

TEST(OutputSelector, ComesAndGoesWhileRequestsRun) {
  FakeEngine fake;
  std::atomic<bool> done{false};
  std::thread clients([&] {
    while (!done) fake.submit({3}, {.temperature = 0, .max_tokens = 3, .ignore_eos = true}).wait();
  });
  for (int round = 0; round < 200; ++round) {
    OutputSelector selector;
    std::vector<Request> requests;
    for (int32_t i = 0; i < 4; ++i) {
      requests.push_back(fake.submit({i}, {.temperature = 0, .max_tokens = 4}));
      selector.add(requests.back().results(), i);
    }
    selector.remove(round % 4);
    if (round % 2 == 0) continue;
    EXPECT_TRUE(selector.wait(60s));
  }
  done = true;
  clients.join();
}

}  // namespace
}  // namespace headrace
