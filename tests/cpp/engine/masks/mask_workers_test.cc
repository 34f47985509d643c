#include "engine/masks/mask_workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "base/check.h"
#include "base/thread_time.h"

namespace headrace::internal {
namespace {

using namespace std::chrono_literals;

/// A constraint whose only matcher spends its time as it is told, and counts its interruptions.
class SlowConstraint final : public TokenConstraint {
 public:
  using Spend = std::function<void(const std::atomic<bool>& interrupted)>;
  explicit SlowConstraint(Spend spend) : spend_(std::move(spend)) {}

  std::unique_ptr<TokenMatcher> start() const override { return std::make_unique<Matcher>(*this); }

  mutable std::atomic<int> interruptions{0};

 private:
  class Matcher final : public TokenMatcher {
   public:
    explicit Matcher(const SlowConstraint& owner) : owner_(owner) {}
    bool next(std::span<uint32_t> allowed) override {
      owner_.spend_(interrupted_);
      if (interrupted_) throw Error(ErrorCode::kLimitExceeded, "interrupted");
      allowed[0] = 1;
      return false;
    }
    void append(int32_t) override {}
    void interrupt() noexcept override {
      ++owner_.interruptions;
      interrupted_ = true;
    }

   private:
    const SlowConstraint& owner_;
    std::atomic<bool> interrupted_{false};
  };

  const Spend spend_;
};

std::shared_ptr<Guide> guide_of(const std::shared_ptr<SlowConstraint>& constraint) {
  auto guide = std::make_shared<Guide>(constraint, 32, GuideEnds{});
  guide->set_due(std::nullopt);
  return guide;
}

void compute_until(const std::atomic<bool>& interrupted) {
  while (!interrupted) {
  }
}

// What a machine that has no core for it looks like to a thread.
TEST(MaskWorkers, TimeWithoutACoreDoesntCount) {
  const auto starved = std::make_shared<SlowConstraint>(
      [](const std::atomic<bool>&) { std::this_thread::sleep_for(150ms); });
  MaskWorkers workers(1, {.cpu = 50ms, .wall = 60s});
  const auto guide = guide_of(starved);
  workers.post(guide);
  workers.wait(*guide);
  EXPECT_EQ(guide->next(), Guide::Next::kTokens);
  EXPECT_EQ(starved->interruptions, 0);
}

TEST(MaskWorkers, AMaskThatTakesTooMuchCpuTimeIsInterruptedOnce) {
  std::atomic<int64_t> cpu{0};
  const auto hostile = std::make_shared<SlowConstraint>([&](const std::atomic<bool>& interrupted) {
    compute_until(interrupted);
    std::this_thread::sleep_for(100ms);  // slow to notice
    cpu = thread_cpu_nanoseconds(this_thread_id());
  });
  MaskWorkers workers(1, {.cpu = 50ms, .wall = 60s});
  const auto guide = guide_of(hostile);
  workers.post(guide);
  workers.wait(*guide);
  EXPECT_EQ(guide->next(), Guide::Next::kFailed);
  EXPECT_EQ(hostile->interruptions, 1);
  EXPECT_GE(cpu.load(), 50'000'000);
}

TEST(MaskWorkers, OneThatSleepsForEverIsInterruptedInTheEnd) {
  const auto asleep = std::make_shared<SlowConstraint>([](const std::atomic<bool>& interrupted) {
    while (!interrupted) std::this_thread::sleep_for(1ms);
  });
  MaskWorkers workers(1, {.cpu = 60s, .wall = 100ms});
  const auto guide = guide_of(asleep);
  workers.post(guide);
  workers.wait(*guide);
  EXPECT_EQ(guide->next(), Guide::Next::kFailed);
  EXPECT_EQ(asleep->interruptions, 1);
}

// The one thread works on another's mask: that one is late, not the one that waits behind it.
TEST(MaskWorkers, AMaskIsNotBlamedForTheOneBeforeIt) {
  const auto hostile = std::make_shared<SlowConstraint>(compute_until);
  const auto innocent = std::make_shared<SlowConstraint>([](const std::atomic<bool>&) {});
  MaskWorkers workers(1, {.cpu = 50ms, .wall = 60s});
  const auto first = guide_of(hostile), second = guide_of(innocent);
  workers.post(first);
  workers.post(second);
  workers.wait(*second);
  EXPECT_EQ(second->next(), Guide::Next::kTokens);
  EXPECT_EQ(innocent->interruptions, 0);
  EXPECT_EQ(first->next(), Guide::Next::kFailed);
}

// Its request has gone, so that nobody waits for it: a model that is released must not.
TEST(MaskWorkers, TheEndInterruptsWhatIsUnderWay) {
  std::atomic<bool> begun{false};
  const auto hostile = std::make_shared<SlowConstraint>([&](const std::atomic<bool>& interrupted) {
    begun = true;
    for (int i = 0; i < 1000 && !interrupted; ++i) std::this_thread::sleep_for(1ms);
  });
  const auto guide = guide_of(hostile);
  {
    MaskWorkers workers(1);
    workers.post(guide);
    while (!begun) std::this_thread::yield();
  }
  EXPECT_EQ(hostile->interruptions, 1);
}

TEST(MaskWorkers, OneThatStartsAtTheEndIsNotAsked) {
  class SlowStart final : public TokenConstraint {
   public:
    explicit SlowStart(std::shared_ptr<SlowConstraint> own) : own_(std::move(own)) {}
    std::unique_ptr<TokenMatcher> start() const override {
      begun = true;
      std::this_thread::sleep_for(20ms);
      return own_->start();
    }
    mutable std::atomic<bool> begun{false};

   private:
    const std::shared_ptr<SlowConstraint> own_;
  };
  std::atomic<bool> asked{false};
  const auto slow = std::make_shared<SlowStart>(
      std::make_shared<SlowConstraint>([&](const std::atomic<bool>&) { asked = true; }));
  auto guide = std::make_shared<Guide>(slow, 32, GuideEnds{});
  guide->set_due(std::nullopt);
  {
    MaskWorkers workers(1);
    workers.post(guide);
    while (!slow->begun) std::this_thread::yield();
  }
  EXPECT_FALSE(asked);
}

}  // namespace
}  // namespace headrace::internal
