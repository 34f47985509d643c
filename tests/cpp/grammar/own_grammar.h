#pragma once

// What tests of GrammarCompiler's own engine begin with.

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "cpp/engine/expect_error.h"
#include "cpp/grammar/ask.h"
#include "headrace/grammar.h"

namespace headrace {

/// One id for each byte, in order, then some of several.
inline VocabularyBytes all_bytes(const std::vector<std::string>& more = {}) {
  VocabularyBytes out;
  for (int byte = 0; byte < 256; ++byte) out.tokens.emplace_back(1, static_cast<char>(byte));
  out.tokens.insert(out.tokens.end(), more.begin(), more.end());
  return out;
}

inline constexpr size_t kWords = 16;  // of a mask: more than any vocabulary here needs

/// Whether a constraint allows a text, byte by byte, and where it may end.
enum class Verdict { kNo, kBegun, kWhole };

inline Verdict judge(const TokenConstraint& constraint, const std::string& text) {
  const auto matcher = constraint.start();
  for (const char c : text) {
    const auto token = static_cast<int32_t>(static_cast<unsigned char>(c));
    if (!std::ranges::count(ask(*matcher, kWords).tokens, token)) return Verdict::kNo;
    matcher->append(token);
  }
  return ask(*matcher, kWords).may_end ? Verdict::kWhole : Verdict::kBegun;
}

class OwnGrammar : public ::testing::Test {
 protected:
  std::shared_ptr<TokenConstraint> schema(const std::string& text) {
    return compiler_.compile(GrammarKind::kJsonSchema, text);
  }
  void expect(const std::string& text, const std::vector<std::string>& whole,
              const std::vector<std::string>& no) {
    const auto constraint = schema(text);
    for (const std::string& output : whole) {
      EXPECT_EQ(judge(*constraint, output), Verdict::kWhole) << text << " " << output;
    }
    for (const std::string& output : no) {
      EXPECT_NE(judge(*constraint, output), Verdict::kWhole) << text << " " << output;
    }
  }
  void refuse(ErrorCode code, GrammarKind kind, const std::string& text,
              std::initializer_list<const char*> words) {
    testing::expect_error(code, words, [&] { compiler_.compile(kind, text); });
  }
  void refuse_schema(ErrorCode code, const std::string& text,
                     std::initializer_list<const char*> words) {
    refuse(code, GrammarKind::kJsonSchema, text, words);
  }

  GrammarCompiler compiler_{all_bytes()};
};

/// `count` items, each made of its number.
template <class Item>
std::string listed(int count, const Item& item) {
  std::string out;
  for (int i = 0; i < count; ++i) out += (i == 0 ? "" : ",") + item(std::to_string(i));
  return out;
}

}  // namespace headrace
