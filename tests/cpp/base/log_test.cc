#include "base/log.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace headrace {
namespace {

struct Counted {
  static inline int formatted = 0;
};

std::ostream& operator<<(std::ostream& out, const Counted&) {
  ++Counted::formatted;
  return out << "counted";
}

TEST(Logger, DropsWithoutASinkAndBelowItsLevel) {
  Counted::formatted = 0;
  Logger silent;
  silent.log(LogLevel::kError, Counted());
  std::vector<std::string> lines;
  const LogSink sink = [&](LogLevel level, std::string_view text) {
    lines.push_back(str_cat(log_level_name(level), " ", text));
  };
  Logger off(sink, std::nullopt);
  off.log(LogLevel::kError, Counted());
  Logger warnings(sink, LogLevel::kWarning);
  warnings.log(LogLevel::kInfo, Counted());
  EXPECT_EQ(Counted::formatted, 0) << "formatted for nobody";
  warnings.log(LogLevel::kWarning, Counted(), " ", 7);
  warnings.log(LogLevel::kError, "bad");
  EXPECT_EQ(lines, (std::vector<std::string>{"warning counted 7", "error bad"}));
}

TEST(Logger, CallsTheSinkOnceAtATimeAndOutlivesItsThrowing) {
  std::atomic<int> inside{0}, most{0}, calls{0};
  Logger logger(
      [&](LogLevel, std::string_view) {
        most = std::max(most.load(), ++inside);
        ++calls;
        std::this_thread::yield();
        --inside;
        throw 1;
      },
      LogLevel::kDebug);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 100; ++k) logger.log(LogLevel::kInfo, "x");
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(calls, 400);
  EXPECT_EQ(most, 1);
}

TEST(Logger, LevelComesFromTheEnvironment) {
  unsetenv("HEADRACE_LOG_LEVEL");
  EXPECT_EQ(log_level_from_env(), LogLevel::kWarning);
  setenv("HEADRACE_LOG_LEVEL", "debug", 1);
  EXPECT_EQ(log_level_from_env(), LogLevel::kDebug);
  setenv("HEADRACE_LOG_LEVEL", "off", 1);
  EXPECT_EQ(log_level_from_env(), std::nullopt);
  setenv("HEADRACE_LOG_LEVEL", "loud", 1);
  EXPECT_THROW(log_level_from_env(), Error);
  unsetenv("HEADRACE_LOG_LEVEL");
}

}  // namespace
}  // namespace headrace
