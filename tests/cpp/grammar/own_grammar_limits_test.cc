// GrammarCompiler's own engine on texts that are long, hostile or many, and on several threads.

#include "cpp/grammar/own_grammar.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace headrace {
namespace {

using testing::expect_error;

/// A step costs what differs, not all that there is.
TEST_F(OwnGrammar, ManyNamesAndValues) {
  const auto names = [](const std::string& i) { return "\"p" + i + R"(":{"type":"integer"})"; };
  const auto values = [](const std::string& i) {
    return R"({"id":")" + i + R"(","n":[1,)" + i + "]}";
  };
  const auto constants = [](const std::string& i) { return R"({"const":")" + i + "\"}"; };
  const auto quoted = [](const std::string& i) { return '"' + i + '"'; };
  expect(R"({"type":"object","properties":{)" + listed(2000, names) + "}}",
         {R"({"p7":1,"p70":3,"p1999":2,"x":null})", "{\n  \"p1999\":2}", "{}"},
         {R"({"p7":1,"p3":2})", R"({"p1999":"a"})"});
  expect(R"({"type":"object","maxProperties":3,"properties":{)" + listed(1000, names) + "}}",
         {R"({"p7":1,"p999":2,"x":null})"}, {R"({"p7":1,"p8":2,"p9":3,"p10":4})"});
  expect(R"({"enum":[)" + listed(2000, values) + "]}",
         {R"({"id":"1999","n":[1,1999]})", "{ \"id\" : \"0\" , \"n\" : [ 1 , 0 ] }"},
         {R"({"id":"7","n":[1,8]})"});
  expect(R"({"type":"array","items":{"anyOf":[)" + listed(1000, constants) + "]}}",
         {R"(["999","0"])"}, {R"(["1000"])"});
  expect(R"({"type":"object","propertyNames":{"enum":[)" + listed(2000, quoted) + "]}}",
         {R"({"1999":null})"}, {R"({"2000":null})"});
  // Other branches are a place each.
  const auto objects = [](const std::string& i) {
    return R"({"type":"object","properties":{"k":{"const":")" + i + R"("}},"required":["k"]})";
  };
  expect(R"({"type":"array","items":{"anyOf":[)" + listed(256, objects) + "]}}",
         {R"([{"k":"255"}])"}, {R"([{"k":"256"}])"});
  refuse_schema(ErrorCode::kInvalidArgument, R"({"anyOf":[)" + listed(257, objects) + "]}",
                {"anyOf", "256"});
}

TEST_F(OwnGrammar, RecursionOfAnyDepth) {
  const auto constraint = schema(R"({"type":"array","items":{"$ref":"#"}})");
  const auto deep = constraint->start();
  for (int i = 0; i < 20'000; ++i) deep->append('[');
  EXPECT_EQ(ask(*deep, kWords).tokens, (Ids{'\n', '\r', ' ', '[', ']'}));
  EXPECT_EQ(judge(*constraint, "[[],[[]]]"), Verdict::kWhole);
  // What only has endless values is never begun.
  expect(R"({"type":"object","properties":{"a":{"$ref":"#/$defs/e"},"b":{"type":"null"}},
             "$defs":{"e":{"type":"object","properties":{"e":{"$ref":"#/$defs/e"}},
             "required":["e"]}}})",
         {R"({"b":null})"}, {R"({"a":{)"});
  refuse_schema(ErrorCode::kInvalidArgument,
                R"({"type":"object","properties":{"e":{"$ref":"#"}},"required":["e"]})",
                {"no finite JSON"});
}

/// Each compiles or is refused; none takes long, or more of anything than its limits.
TEST_F(OwnGrammar, HostileTexts) {
  GrammarLimits limits;  // a tenth of the usual ones, of which all would take ten times as long
  limits.max_grammar_size /= 10;
  limits.compile_fuel /= 10;
  limits.token_fuel /= 10;
  limits.max_token_items /= 10;
  limits.max_lexer_states /= 10;
  GrammarCompiler compiler(all_bytes(), limits);
  const auto repeated = [](const std::string& text, size_t times) {
    std::string out;
    for (size_t i = 0; i < times; ++i) out += text;
    return out;
  };
  const auto attempt = [&](GrammarKind kind, const std::string& text) {
    try {
      const auto matcher = compiler.compile(kind, text)->start();
      for (int i = 0; i < 50; ++i) {
        const Answer answer = ask(*matcher, kWords);
        if (answer.tokens.empty()) break;
        matcher->append(answer.tokens[answer.tokens.size() / 2]);
      }
    } catch (const InternalError&) {
      throw;
    } catch (const Error&) {
    }
  };
  for (const std::string& pattern :
       {repeated("(", 30'000), repeated("a?", 30'000), repeated("[", 30'000),
        repeated("\\w", 30'000), repeated("(a|", 90) + repeated(")", 90), repeated("a*", 3000),
        "a" + repeated("{9}", 5000), std::string("((((a{1,100}){1,100}){1,100}){1,100}){1,100}b"),
        std::string("(a|b)*a(a|b){500}c"), "[" + repeated("\\w", 20'000) + "]",
        "(?i)" + repeated("[a-z\\w]", 3000), repeated("(?:a|b)*c|", 3000),
        std::string("(.*a){200}")}) {
    attempt(GrammarKind::kRegex, pattern);
    attempt(GrammarKind::kJsonSchema, R"({"type":"string","pattern":")" +
                                          (pattern.find('\\') == std::string::npos ? pattern : "") +
                                          R"(","minLength":3})");
  }
  std::string any_of = R"({"anyOf":[{"minimum":1},{"maximum":3}]})";
  std::string many = "{\"allOf\":[" + any_of;
  for (int i = 0; i < 40; ++i) many += "," + any_of;
  attempt(GrammarKind::kJsonSchema, many + "]}");
  attempt(GrammarKind::kJsonSchema, repeated(R"({"items":)", 5000) + "{}" + repeated("}", 5000));
  attempt(GrammarKind::kJsonSchema, R"({"type":"integer","multipleOf":999999937,"minimum":1})");
  attempt(GrammarKind::kJsonSchema,
          R"({"type":"string","minLength":1000000,"maxLength":2000000,"pattern":"^a*$"})");
  attempt(GrammarKind::kJsonSchema,
          R"({"type":"object","minProperties":1000000000,"properties":{"a":{}}})");
  std::string names = R"({"type":"object","minProperties":1000,"properties":{"a":{})";
  for (int i = 0; i < 3000; ++i) names += ",\"p" + std::to_string(i) + "\":{}";
  attempt(GrammarKind::kJsonSchema, names + "}}");
  std::string patterns = R"({"type":"object","patternProperties":{"a":{})";
  for (int i = 0; i < 40; ++i) patterns += ",\"p" + std::to_string(i) + "\":{\"type\":\"null\"}";
  attempt(GrammarKind::kJsonSchema, patterns + "}}");
  std::string chain = R"({"$ref":"#/$defs/a0","$defs":{"z":{})";
  for (int i = 0; i < 3000; ++i) {
    chain +=
        ",\"a" + std::to_string(i) + "\":{\"$ref\":\"#/$defs/a" + std::to_string(i + 1) + "\"}";
  }
  attempt(GrammarKind::kJsonSchema, chain + ",\"a3000\":{}}}");
}

/// Parts that are long and come into play often: what is found again costs steps, too.
TEST_F(OwnGrammar, LongPartsCountAsOftenAsTheyAreRead) {
  GrammarLimits limits;
  limits.compile_fuel = 50'000;
  GrammarCompiler compiler(all_bytes(), limits);
  const auto compile = [&](const std::string& text) {
    return compiler.compile(GrammarKind::kJsonSchema, text);
  };
  const auto combinations = [&](int count) {
    return R"({"allOf":[{"enum":[")" + std::string(20'000, 'a') + "\"]}," +
           listed(count,
                  [](const std::string&) {
                    return std::string(R"({"anyOf":[{"minLength":1},{"minLength":2}]})");
                  }) +
           "]}";
  };
  const auto names = [&](int count) {
    return R"({"type":"object","minProperties":)" + std::to_string(count) + R"(,"properties":{)" +
           listed(count, [](const std::string& i) { return "\"" + i + R"(":{"type":"null"})"; }) +
           ",\"" + std::string(10'000, 'a') + R"(":true}})";
  };
  const auto separators = [&](int count) {
    return R"({"x-guidance":{"item_separator":")" + std::string(4000, ',') +
           R"("},"type":"array","prefixItems":[)" +
           listed(count, [](const std::string&) { return std::string("true"); }) + "]}";
  };
  EXPECT_NE(compile(combinations(1)), nullptr);
  EXPECT_NE(compile(names(60)), nullptr);  // a tree has its long name once
  EXPECT_NE(compile(separators(3)), nullptr);
  for (const std::string& text : {combinations(6), separators(300)}) {
    expect_error(ErrorCode::kInvalidArgument, {"more steps"}, [&] { compile(text); });
  }
}

// A search for a match that tries the farthest first gets lost in what may be in front of it.
TEST_F(OwnGrammar, LongPatternsWithinALengthAreCheap) {
  const GrammarCompiler compiler(all_bytes(), {.compile_fuel = 200'000});
  for (const char* pattern :
       {"arn:(aws|aws-us-gov):sso:::permissionSet/(sso)?ins-[a-zA-Z0-9-.]{16}/ps-[a-zA-Z0-9-.]{16}",
        "^arn:[^:]{1,63}:ec2:[^:]{0,63}:[^:]{0,63}:vpn/vpn-[0-9a-f]{8,17}$"}) {
    EXPECT_NO_THROW(
        compiler.compile(GrammarKind::kJsonSchema,
                         R"({"type":"string","minLength":10,"maxLength":1224,"pattern":")" +
                             std::string(pattern) + "\"}"))
        << pattern;
  }
}

TEST_F(OwnGrammar, OneOutputsCostIsNobodyElses) {
  GrammarLimits limits;
  limits.max_lexer_states = 300;
  GrammarCompiler compiler(all_bytes(), limits);
  // Each of the last characters is a state's: outputs fill the memory that they share.
  const auto constraint = compiler.compile(GrammarKind::kRegex, "[ab]*a[ab]{9}c");
  const auto small = constraint->start();
  EXPECT_EQ(ask(*small, kWords).tokens, (Ids{'a', 'b'}));
  const auto large = constraint->start();
  expect_error(ErrorCode::kLimitExceeded, {"states"}, [&] {
    uint32_t random = 1;
    for (int i = 0; i < 5000; ++i) {
      random = random * 1664525 + 1013904223;
      large->append((random >> 31) == 0 ? 'a' : 'b');
    }
  });
  for (int i = 0; i < 5; ++i) {
    small->append('b');
    EXPECT_EQ(ask(*small, kWords).tokens, (Ids{'a', 'b'}));
  }
  EXPECT_EQ(judge(*constraint, "abbbbbbbbbc"), Verdict::kWhole);
}

/// An output that runs out of steps leaves behind what it has found out: there is nothing that
/// others have filled, so neither it nor the next one begins again.
TEST_F(OwnGrammar, StepsAreNotSpentTwice) {
  GrammarLimits limits;
  limits.token_fuel = 1500;
  GrammarCompiler compiler(all_bytes(), limits);
  std::string pattern = "a(?:z";
  for (char c = 'a'; c < 'z'; ++c) {
    pattern += std::string("|[") + c + static_cast<char>(c + 1) + "][0-9]" + c;
  }
  const auto constraint = compiler.compile(GrammarKind::kRegex, pattern + ")");
  const auto goes_on = [&] {
    const auto matcher = constraint->start();
    matcher->append('a');
    return ask(*matcher, kWords).tokens.size() == 26;
  };
  expect_error(ErrorCode::kLimitExceeded, {"more steps"}, goes_on);
  int failures = 1;
  for (bool done = false; !done && failures < 20;) {
    try {
      done = goes_on();
    } catch (const Error&) {
      ++failures;
    }
  }
  EXPECT_LT(failures, 20);
}

TEST_F(OwnGrammar, ManyThreadsFollowOne) {
  const auto constraint = schema(R"({"type":"array","items":{"type":"object"}})");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(judge(*constraint, R"([{"a":[1,{}]}, {"b":"x"}])"), Verdict::kWhole);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(OwnGrammar, AMatcherCanBeInterrupted) {
  std::vector<std::string> words;
  for (int i = 0; i < 10'000; ++i) words.push_back("w" + std::to_string(i));
  GrammarCompiler compiler(all_bytes(words));
  const auto matcher = compiler.compile(GrammarKind::kRegex, "a[\\w]*")->start();
  matcher->append('a');
  matcher->interrupt();
  expect_error(ErrorCode::kLimitExceeded, {"takes too long"}, [&] { ask(*matcher, 400); });
}

}  // namespace
}  // namespace headrace
