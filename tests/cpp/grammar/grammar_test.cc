// GrammarCompiler over a stand-in for llguidance: what the real one can't be made to do.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "cpp/engine/expect_error.h"
#include "cpp/grammar/ask.h"
#include "grammar/deep_stack.h"
#include "grammar/llguidance_compiler.h"
#include "headrace/grammar.h"

namespace headrace {
namespace {

using testing::expect_error;

/// Ids 0.. : a b ab " a" " " <|x|> and one that is no text.
VocabularyBytes vocabulary() {
  VocabularyBytes out;
  out.tokens = {"a", "b", "ab", " a", " ", "", "\xff"};
  out.first_tokens = {{3, "a"}, {4, "\xff"}};
  out.special_tokens = {{5, "<|x|>"}};
  return out;
}

TEST(Grammar, FollowsAnOutput) {
  GrammarCompiler compiler(GOOD_LIBRARY, vocabulary());
  EXPECT_EQ(compiler.library_version(), "llguidance@1.12.3 fake");
  const auto constraint = compiler.compile(GrammarKind::kRegex, "ab b");
  const auto matcher = constraint->start();
  EXPECT_EQ(ask(*matcher), (Answer{{0, 2, 3}, false}));  // " a" adds "a" at the start
  matcher->append(3);
  EXPECT_EQ(ask(*matcher), (Answer{{1}, false}));
  matcher->append(1);
  EXPECT_EQ(ask(*matcher, 3), (Answer{{4}, false}));  // words beyond the vocabulary stay empty
  matcher->append(4);
  EXPECT_EQ(ask(*matcher), (Answer{{1}, false}));
  matcher->append(1);
  EXPECT_EQ(ask(*matcher), (Answer{{}, true}));
  EXPECT_EQ(ask(*constraint->start()), (Answer{{0, 2, 3}, false}));  // the next one starts afresh
}

TEST(Grammar, FormsThatOnlyTheStartHas) {
  VocabularyBytes words;
  words.tokens = {" one", " two", "o"};
  words.first_tokens = {{0, "one"}, {1, "two"}};
  GrammarCompiler compiler(GOOD_LIBRARY, words);
  const auto matcher = compiler.compile(GrammarKind::kRegex, "two two")->start();
  EXPECT_EQ(ask(*matcher), (Answer{{1}, false}));
  matcher->append(1);
  EXPECT_EQ(ask(*matcher), (Answer{{1}, false}));
  matcher->append(1);
  EXPECT_EQ(ask(*matcher), (Answer{{}, true}));
}

TEST(Grammar, ATokenThatAddsNothingAtTheStart) {
  VocabularyBytes words;
  words.tokens = {" ", " a", "a"};
  words.first_tokens = {{0, ""}, {1, "a"}};
  GrammarCompiler compiler(GOOD_LIBRARY, words);
  const auto matcher = compiler.compile(GrammarKind::kRegex, " a")->start();
  EXPECT_EQ(ask(*matcher), (Answer{{0}, false}));  // a space is needed, and every first one is lost
  matcher->append(0);
  EXPECT_EQ(ask(*matcher), (Answer{{0, 1}, false}));
  matcher->append(1);
  EXPECT_EQ(ask(*matcher), (Answer{{}, true}));
  // Nothing can follow it here.
  EXPECT_EQ(ask(*compiler.compile(GrammarKind::kRegex, "")->start()), (Answer{{}, true}));
}

TEST(Grammar, OutlivesItsCompiler) {
  auto compiler = std::make_unique<GrammarCompiler>(GOOD_LIBRARY, vocabulary());
  auto constraint = compiler->compile(GrammarKind::kRegex, "a");
  compiler.reset();
  auto matcher = constraint->start();
  constraint.reset();
  EXPECT_EQ(ask(*matcher), (Answer{{0, 3}, false}));
}

TEST(Grammar, BadGrammarsAreNamed) {
  GrammarLimits limits;
  limits.max_grammar_bytes = 100;
  GrammarCompiler compiler(GOOD_LIBRARY, vocabulary(), limits);
  const auto compile = [&](GrammarKind kind, const std::string& text) {
    return [&compiler, kind, text] { compiler.compile(kind, text); };
  };
  expect_error(ErrorCode::kInvalidArgument, {"regular expression", "regex: it is open"},
               compile(GrammarKind::kRegex, "("));
  expect_error(ErrorCode::kInvalidArgument, {"JSON schema", "json_schema: it is open"},
               compile(GrammarKind::kJsonSchema, "("));
  expect_error(ErrorCode::kInvalidArgument, {"grammar", "101 bytes", "100"},
               compile(GrammarKind::kLark, std::string(101, 'a')));
  expect_error(ErrorCode::kInvalidArgument, {"NUL"},
               compile(GrammarKind::kLark, std::string("a\0b", 3)));
  expect_error(ErrorCode::kInvalidArgument, {"no token", "begin"},
               compile(GrammarKind::kRegex, "zzz"));
  expect_error(ErrorCode::kInvalidArgument, {"GrammarKind", "9"},
               compile(static_cast<GrammarKind>(9), "a"));
}

TEST(Grammar, OneThatTakesForEverIsGivenUp) {
  const auto compiler = internal::make_llguidance_compiler(GOOD_LIBRARY, vocabulary(), {},
                                                           std::chrono::milliseconds(20));
  expect_error(ErrorCode::kInvalidArgument, {"takes too long"},
               [&] { compiler->compile(GrammarKind::kRegex, "loop"); });
}

#if !defined(HEADRACE_ASAN) && !defined(HEADRACE_TSAN)  // they take all address space
TEST(Grammar, WhereMemoryIsShortNothingIsCompiled) {
  GrammarCompiler compiler(GOOD_LIBRARY, vocabulary());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit tight = before;
  tight.rlim_cur = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + (80u << 20);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  expect_error(ErrorCode::kOutOfMemory, {"regular expression", "MiB"},
               [&] { compiler.compile(GrammarKind::kRegex, "a"); });
  tight.rlim_cur -= 40u << 20;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  expect_error(ErrorCode::kOutOfMemory, {"vocabulary of 8 ids", "MiB"},
               [&] { GrammarCompiler other(GOOD_LIBRARY, vocabulary()); });
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_NE(compiler.compile(GrammarKind::kRegex, "a"), nullptr);
}
#endif

TEST(Grammar, AMatcherCanBeInterrupted) {
  GrammarCompiler compiler(GOOD_LIBRARY, vocabulary());
  const auto matcher = compiler.compile(GrammarKind::kRegex, "aloop")->start();
  EXPECT_EQ(ask(*matcher), (Answer{{0, 3}, false}));
  matcher->append(0);
  std::thread other([&] { matcher->interrupt(); });
  expect_error(ErrorCode::kLimitExceeded, {"takes too long"}, [&] { ask(*matcher); });
  other.join();
}

TEST(Grammar, BadVocabulariesAreRefused) {
  const auto make = [](VocabularyBytes words) {
    return [words] { GrammarCompiler compiler(GOOD_LIBRARY, words); };
  };
  expect_error(ErrorCode::kInvalidArgument, {"1 to", "got 0"}, make({}));
  VocabularyBytes words = vocabulary();
  words.first_tokens = {{7, "a"}};
  expect_error(ErrorCode::kInvalidArgument, {"first_tokens", "id 7"}, make(words));
  words = vocabulary();
  words.special_tokens = {{-1, "x"}};
  expect_error(ErrorCode::kInvalidArgument, {"special_tokens", "id -1"}, make(words));
  words.special_tokens = {{1, "\xff"}};
  expect_error(ErrorCode::kInvalidArgument, {"UTF-8"}, make(words));
  words = vocabulary();
  words.tokens[0] = "refused";
  expect_error(ErrorCode::kInvalidArgument, {"no such vocabulary"}, make(words));
}

TEST(Grammar, OtherLibrariesAreRefused) {
  const auto load = [](const char* path) {
    return [path] { GrammarCompiler compiler(path, vocabulary()); };
  };
  expect_error(ErrorCode::kNotFound, {"/nowhere/lib.so", "can't be loaded"},
               load("/nowhere/lib.so"));
  expect_error(ErrorCode::kUnsupported, {"libm.so.6", "no llguidance"}, load("libm.so.6"));
  expect_error(ErrorCode::kUnsupported, {"1.8.9", "1.9"}, load(OLD_LIBRARY));
  expect_error(ErrorCode::kUnsupported, {"1.99.0", "C interface"}, load(OTHER_LIBRARY));
}

TEST(Grammar, ManyThreadsCompileAndFollow) {
  GrammarCompiler compiler(GOOD_LIBRARY, vocabulary());
  const auto shared = compiler.compile(GrammarKind::kRegex, "abab");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        const auto own = compiler.compile(GrammarKind::kRegex, "ab");
        for (const auto& constraint : {shared, own}) {
          const auto matcher = constraint->start();
          EXPECT_EQ(ask(*matcher), (Answer{{0, 2, 3}, false}));
          matcher->append(2);
          EXPECT_EQ(ask(*matcher).may_end, constraint == own);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

int64_t depth_of(int64_t levels) {
  volatile char frame[1024] = {};
  return levels == 0 ? frame[0] : 1 + depth_of(levels - 1) + frame[1];
}

TEST(DeepStack, IsDeepAndPassesErrorsOn) {
  const auto patience = std::chrono::seconds(100);
  int64_t depth = 0;
  internal::call_on_deep_stack(256 << 20, [&] { depth = depth_of(50'000); }, patience, [] {});
  EXPECT_EQ(depth, 50'000);
  expect_error(ErrorCode::kCorruptFile, {"inside"}, [&] {
    internal::call_on_deep_stack(
        1 << 20, [] { throw Error(ErrorCode::kCorruptFile, "inside"); }, patience, [] {});
  });
}

}  // namespace
}  // namespace headrace
