#include "text/regex/engine.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "headrace/status.h"

namespace headrace::text {
namespace {

/// All matches, each in brackets, and what is between them.
std::string marked(std::string_view pattern, std::string_view text) {
  Fuel fuel(64 * text.size() + (1u << 20), "this test");
  std::vector<Range> matches;
  compile_general(pattern)->find_all(text, 0, &matches, &fuel);
  std::string shown;
  size_t done = 0;
  for (const Range& match : matches) {
    shown += text.substr(done, match.begin - done);
    shown += "[" + std::string(text.substr(match.begin, match.end - match.begin)) + "]";
    done = match.end;
  }
  return shown.append(text.substr(done));
}

struct Case {
  const char* pattern;
  const char* text;
  const char* expected;
};

// Each as the `tokenizers` package has it.
class EngineTest : public testing::TestWithParam<Case> {};

TEST_P(EngineTest, MatchesAsOniguruma) {
  const Case& test = GetParam();
  EXPECT_EQ(marked(test.pattern, test.text), test.expected) << test.pattern;
}

INSTANTIATE_TEST_SUITE_P(
    Repeats, EngineTest,
    testing::Values(Case{"\\d{1,3}+", "12345", "[12345]"}, Case{"a{1,3}", "aaaaa", "[aaa][aa]"},
                    Case{"a{,2}b", "aaab", "a[aab]"}, Case{"a{2,1}", "aaa", "[aa][a]"},
                    Case{"a{2}?b", "b aab", "[b] [aab]"}, Case{"a{x}", "a{x}", "[a{x}]"},
                    Case{"a++a", "aaa", "aaa"}, Case{"a?+a", "a aa", "a [aa]"},
                    Case{"(?:ab){2,}?", "ababab", "[abab]ab"}, Case{"x*", "axb", "[]a[x]b[]"},
                    Case{"(a*)*b", "aab", "[aab]"}, Case{"(?>a|ab)c", "abc ac", "abc [ac]"},
                    Case{"(a|ab)(c|bcd)", "abcd", "[abcd]"}, Case{"a**", "aaa", "[aaa]"},
                    Case{"(?:a?){3}a{3}", "aaaa", "[aaaa]"}));

INSTANTIATE_TEST_SUITE_P(
    Places, EngineTest,
    testing::Values(Case{"^a", "a\naa", "[a]\n[a]a"}, Case{"a$", "aa\na", "a[a]\n[a]"},
                    Case{"\\Aa", "aa", "[a]a"}, Case{"a\\z", "a\na", "a\n[a]"},
                    Case{"a\\Z", "a\na\n", "a\n[a]\n"}, Case{"\\bx", "x xx", "[x] [x]x"},
                    Case{"(?<=a|bc)d", "adbcd", "a[d]bc[d]"}, Case{"(?<!a)b", "abb", "ab[b]"},
                    Case{"(?<=a+)b", "aabb", "aa[b]b"}, Case{"\\s+(?!\\S)", "a   b", "a[  ] b"},
                    Case{"\\d{1,3}(?=(?:\\d{3})*\\b)", "1234567", "[1][234][567]"},
                    Case{"(?=(\\d{3})+(?!\\d))", "1234567", "1[]234[]567"}));

INSTANTIATE_TEST_SUITE_P(
    Classes, EngineTest,
    testing::Values(Case{"[a-z&&[^b]]+", "abc", "[a]b[c]"}, Case{"[^a-z&&b]+", "abc", "[a]b[c]"},
                    Case{"[]a]", "a]", "[a][]]"}, Case{"[a-]", "a-b", "[a][-]b"},
                    Case{"[[:^alpha:]]", "a1", "a[1]"}, Case{"\\h", "fg9", "[f]g[9]"},
                    Case{"\\p{^L}", "a1", "a[1]"}, Case{"\\P{L}", "a1", "a[1]"},
                    Case{"\\p{Han}+", "字漢a", "[字漢]a"}, Case{"\\pL", "pL", "[pL]"},
                    Case{"[\\p{L}&&[^\\p{Han}]]+", "é字a", "[é]字[a]"},
                    Case{".", "a\nb", "[a]\n[b]"}, Case{"(?m:.+)", "a\nb", "[a\nb]"},
                    Case{"\\w+", "a²¼_-", "[a²¼_]-"}, Case{"[\\w]+", "a²¼_-", "[a]²¼[_]-"},
                    Case{"[^\\w]", "²-", "[²][-]"}, Case{"\\W+", "a²-", "a²[-]"},
                    Case{"\\p{Word}+", "a²-", "[a²]-"}, Case{"[\\p{Word}]+", "a²-", "[a]²-"},
                    Case{"[[:punct:]]\\p{Punct}", "+- ++", "[+-] ++"},
                    Case{"\\b", "²-", "[]²[]-"}));

INSTANTIATE_TEST_SUITE_P(AnyCase, EngineTest,
                         testing::Values(Case{"(?i:'s)", "'ſ'S's", "['ſ]['S]['s]"},
                                         Case{"(?i:k)", "kK\u212A", "[k][K][\u212A]"},
                                         Case{"(?i:[^k])", "k\u212Aa", "k\u212A[a]"},
                                         Case{"a(?i)b|c", "aBCc", "[aB]Cc"},
                                         Case{"(?i:\\p{Lu})", "aA", "a[A]"},
                                         Case{"(?-i:a)", "aA", "[a]A"}));

ErrorCode code_of(std::string_view pattern) {
  try {
    compile_general(pattern);
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

TEST(EngineErrorTest, WrongPatternsNameTheirPlace) {
  for (const char* pattern : {"(", ")", "[", "*a", "+", "a|*", "[b-a]", "[\\d-a]", "[a-\\d]", "^*",
                              "(?=a)+", "{1}a", "\\u12", "\\"}) {
    EXPECT_EQ(code_of(pattern), ErrorCode::kCorruptFile) << pattern;
  }
  try {
    compile_general("ab[c");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("byte 3"), std::string::npos) << error.what();
  }
}

TEST(EngineErrorTest, UnknownConstructsAreRefused) {
  for (const char* pattern :
       {"(a)\\1", "(?<n>a)\\k<n>", "(?<n>a)\\g<n>", "(?~a)", "(?(1)a|b)", "\\X", "\\K", "\\G",
        "\\p{Foo}", "[[:foo:]]", "(?i:ß)", "(?i:ss)", "(?i:[ß])", "\\cA", "\\xE9"}) {
    EXPECT_EQ(code_of(pattern), ErrorCode::kUnsupported) << pattern;
  }
}

TEST(EngineErrorTest, PatternsAreLimited) {
  const auto repeated = [](std::string_view part, size_t times) {
    std::string all;
    for (size_t i = 0; i < times; ++i) {
      all += part;
    }
    return all;
  };
  EXPECT_EQ(code_of(repeated("(", 200) + repeated(")", 200)), ErrorCode::kLimitExceeded);
  EXPECT_EQ(code_of(repeated("[", 200) + "a" + repeated("]", 200)), ErrorCode::kLimitExceeded);
  EXPECT_EQ(code_of("a" + repeated("{2}", 200)), ErrorCode::kLimitExceeded);
  EXPECT_EQ(code_of(repeated("(?:", 50) + "a" + repeated(repeated("{2}", 40) + ")", 50)),
            ErrorCode::kLimitExceeded);
  EXPECT_EQ(code_of(repeated("ab|", 3000)), ErrorCode::kLimitExceeded);
  EXPECT_EQ(code_of("[" + repeated("\\p{L}", 5000) + "]"), ErrorCode::kLimitExceeded);
  EXPECT_EQ(code_of(std::string(70000, '[')), ErrorCode::kLimitExceeded);
  EXPECT_EQ(code_of("a{1001}"), ErrorCode::kLimitExceeded);
}

TEST(EngineErrorTest, CatastrophicPatternsEnd) {
  const std::string text(200, 'a');
  for (const char* pattern : {"(a+)+$b", "(a|a)*b", "(a*)*b", "((a{1,1000}){1,1000}){1,1000}b",
                              "(?:(?<=a{0,1000})a)*(?:a|a)*b", "((((a*)*)*)*)*b"}) {
    EXPECT_THROW(marked(pattern, text), Error) << pattern;
  }
}

TEST(EngineErrorTest, WhatAPatternRemembersIsCharged) {
  std::string pattern;
  for (int i = 0; i < 700; ++i) {
    pattern += "(?:a?b){2,3}";
  }
  const auto regex = compile_general(pattern);
  Fuel fuel(300, "this test");
  EXPECT_THROW(regex->find("x", 0, &fuel), Error);  // for a word
}

TEST(EngineErrorTest, RunsAreTriedOnce) {
  const std::string spaces(50'000, ' ');
  EXPECT_EQ(marked("\\s+$", spaces + "x"), spaces + "x");
  EXPECT_EQ(marked("a+b", std::string(50'000, 'a') + "caab"), std::string(50'000, 'a') + "c[aab]");
  EXPECT_EQ(marked("\\s{2,}(?<=\\n )x", "  \n x"), "[  \n x]");
}

TEST(EngineErrorTest, LongTextsNeedNoRecursion) {
  const std::string text(300'000, 'a');
  EXPECT_EQ(marked("(?:a|b)*", text), "[" + text + "]");
  EXPECT_EQ(marked("(?:(?>a))*?$", text), "[" + text + "]");
}

}  // namespace
}  // namespace headrace::text
