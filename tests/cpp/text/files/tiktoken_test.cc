#include "text/files/tiktoken/tiktoken.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "headrace/status.h"
#include "text/encode/pipeline.h"
#include "text/files/pre_names.h"

namespace headrace::text {
namespace {

using Ids = std::vector<int32_t>;

Ids ids(TokenizerTables tables, std::string_view text) {
  const Pipeline pipeline(make_parts(std::move(tables)), SequenceEnds{});
  const auto scratch = pipeline.make_scratch();
  Ids ids;
  pipeline.encode(text, false, false, scratch.get(), &ids, nullptr);
  return ids;
}

// "a" 0, "b" 1, "c" 2, "bc" 3, "ab" 4, "abcc" 5
constexpr std::string_view kLines = "YQ== 0\nYg== 1\r\nYw== 2\n\nYmM= 3\nYWI= 4\nYWJjYw== 5";

TEST(Tiktoken, MergesToTheLowestRankAndTakesWholeWords) {
  EXPECT_EQ(ids(read_tiktoken(kLines, "llama3"), "abc"), (Ids{0, 3}));
  EXPECT_EQ(ids(read_tiktoken(kLines, "llama3"), "abcc"), (Ids{5}));  // no merges lead there
  EXPECT_EQ(ids(read_tiktoken(kLines, "llama3"), "abccc"), (Ids{0, 3, 2, 2}));
}

TEST(Tiktoken, SpecialTokensAreCutOut) {
  TokenizerTables tables = read_tiktoken(kLines, "llama3");
  add_special(6, "<|x|>", &tables);
  const TokenizerParts parts = make_parts(tables);
  ASSERT_NE(parts.added.find(6), nullptr);
  EXPECT_EQ(parts.added.find(6)->pattern, "<|x|>");  // as decoders spell it
  EXPECT_EQ(ids(std::move(tables), "ab<|x|>c"), (Ids{4, 6, 2}));
  EXPECT_EQ(qwen_specials().size(), 208u);
  EXPECT_EQ(llama3_specials().size(), 256u);
  EXPECT_EQ(llama3_specials().back(), "<|reserved_special_token_245|>");
}

TEST(Tiktoken, IsToldFromSentencePiece) {
  EXPECT_TRUE(is_tiktoken(kLines));
  EXPECT_FALSE(is_tiktoken("\n\x0e\n\x05<unk>\x15"));
  EXPECT_FALSE(is_tiktoken(""));
}

TEST(Tiktoken, RefusesBadLines) {
  for (const char* bad : {"", "\n", "YQ==", "YQ== x", "YQ== -1", "YQ== 1 2", "YQ 1", "Y!== 1", " 1",
                          "YQ== 4194304", "YQ== 99999999999", "YQ== 1\nYg== 1", "YQ== 1\nYQ== 2"}) {
    EXPECT_THROW(read_tiktoken(bad, "llama3"), Error) << bad;
  }
}

std::string tekken(std::string_view config, std::string_view vocab, std::string_view more = "") {
  return R"({"config":{"pattern":"[a-z]+|[^a-z]+",)" + std::string(config) + R"(},"vocab":[)" +
         std::string(vocab) + "]" + std::string(more) + "}";
}

constexpr const char* kVocab =
    R"({"rank":0,"token_bytes":"YQ==","token_str":"a"},{"rank":1,"token_bytes":"Yg=="},)"
    R"({"rank":2,"token_bytes":"YWI="},{"rank":3,"token_bytes":"YmE="})";

TEST(Tekken, PutsSpecialTokensFirstAndCutsTheVocabulary) {
  const std::string file =
      tekken(R"("default_vocab_size":25,"default_num_special_tokens":22)", kVocab);
  EXPECT_EQ(ids(read_tekken(file), "ab</s>ba<SPECIAL_21>"), (Ids{24, 2, 23, 22, 21}));
  const std::string listed =
      tekken(R"("default_vocab_size":6,"default_num_special_tokens":2)", kVocab,
             R"(,"special_tokens":[{"rank":1,"token_str":"[X]","is_control":true}])");
  EXPECT_EQ(ids(read_tekken(listed), "aba[X]<SPECIAL_0>"), (Ids{4, 2, 1, 0}));
}

TEST(Tekken, RefusesTablesThatDontFit) {
  const char* const sizes = R"("default_vocab_size":6,"default_num_special_tokens":2)";
  const char* const none = R"(,"special_tokens":[])";
  EXPECT_NO_THROW(read_tekken(tekken(sizes, kVocab, none)));
  for (const std::string& bad :
       {std::string("{}"), std::string("[]"), tekken(sizes, kVocab),  // no room for the usual ones
        tekken(R"("default_vocab_size":9,"default_num_special_tokens":2)", kVocab, none),
        tekken(R"("default_vocab_size":1,"default_num_special_tokens":2)", kVocab, none),
        tekken(R"("default_vocab_size":1e9,"default_num_special_tokens":2)", kVocab, none),
        tekken(R"("default_vocab_size":6,"default_num_special_tokens":-2)", kVocab, none),
        tekken(R"("default_vocab_size":6)", kVocab, none),
        tekken(sizes, R"({"rank":0,"token_bytes":"YQ=="},{"rank":0,"token_bytes":"Yg=="})", none),
        tekken(sizes, R"({"rank":0,"token_bytes":"Y"})", none),
        tekken(sizes, R"({"rank":0})", none), tekken(sizes, R"({"token_bytes":"YQ=="})", none),
        tekken(sizes, kVocab, R"(,"special_tokens":[{"rank":2,"token_str":"x"}])"),
        tekken(sizes, kVocab, R"(,"special_tokens":[{"rank":0}])")}) {
    EXPECT_THROW(read_tekken(bad), Error) << bad;
  }
}

TEST(PreNames, GiveTheOriginalPatternsOrAreRefused) {
  TokenizerTables tables;
  set_pre("llama-bpe", &tables);
  ASSERT_EQ(tables.split.size(), 1u);
  EXPECT_EQ(tables.split[0], R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                             R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
  EXPECT_TRUE(tables.ignore_merges);
  set_pre("smollm", &tables);
  EXPECT_TRUE(tables.digits_first);
  EXPECT_FALSE(tables.ignore_merges);
  set_pre("deepseek-v3", &tables);
  EXPECT_EQ(tables.split.size(), 3u);
  try {
    set_pre("default", &tables);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("qwen2"), std::string::npos);
  }
}

}  // namespace
}  // namespace headrace::text
