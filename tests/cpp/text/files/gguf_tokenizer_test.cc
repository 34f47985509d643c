#include "text/files/gguf/gguf_tokenizer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "cpp/gguf/gguf_writer.h"
#include "headrace/status.h"
#include "headrace/text.h"
#include "text/encode/pipeline.h"
#include "text/files/gguf/gguf_specials.h"
#include "text/files/gguf/gguf_templates.h"
#include "text/files/tokenizer_config.h"

namespace headrace::text {
namespace {

using test::GgufWriter;
using Ids = std::vector<int32_t>;
using Texts = std::vector<std::string>;
using Types = std::vector<int32_t>;

const std::string kBegin = "tokenizer.ggml.";
const std::string kSpace = "\u2581";

GgufWriter tokenizer(const char* model, const Texts& tokens, const Types& types) {
  GgufWriter made;
  made.put(kBegin + "model", model).put(kBegin + "tokens", tokens);
  made.put(kBegin + "token_type", types);
  return made;
}

Ids ids_of(const GgufWriter& writer, std::string_view text, bool special = false,
           bool special_as_text = false) {
  const std::string file = writer.file();
  const Pipeline pipeline(make_parts(read_gguf_tokenizer(parse_gguf(file, "m.gguf"))), {});
  const auto scratch = pipeline.make_scratch();
  Ids ids;
  pipeline.encode(text, special, special_as_text, scratch.get(), &ids, nullptr);
  return ids;
}

std::string fault_of(const std::function<void()>& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

std::string fault_of(const GgufWriter& writer, ErrorCode code = ErrorCode::kCorruptFile) {
  return fault_of([&] { ids_of(writer, "a"); }, code);
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// 0 a, 1 b, 2 "ab", 3 " a" (U+0120 a), 4 " ", 5 a control token, 6 a user-defined one with a
// space, 7 nothing, 8 no token.
GgufWriter bytes_bpe(const char* pre, int32_t types = 9) {
  Types all = {1, 1, 1, 1, 1, 3, 4, 1, 5};
  all.resize(static_cast<size_t>(types), 1);
  GgufWriter made =
      tokenizer("gpt2", {"a", "b", "ab", "\u0120a", "\u0120", "<s>", "a b", "", "[PAD8]"}, all);
  // Spaces inside of parts are U+0120.
  made.put(kBegin + "merges", Texts{"a b", "\u0120 a"});
  if (pre != nullptr) made.put(kBegin + "pre", pre);
  return made;
}

TEST(GgufTokenizer, ReadsByteLevelBpe) {
  EXPECT_EQ(ids_of(bytes_bpe("qwen2"), "ab aab"), (Ids{2, 3, 2}));
  // Added tokens are cut out of the raw text, the user-defined ones always.
  EXPECT_EQ(ids_of(bytes_bpe("qwen2"), "ba b<s>a"), (Ids{1, 6, 5, 0}));
  EXPECT_EQ(ids_of(bytes_bpe("qwen2"), "a b", false, true), (Ids{6}));
  EXPECT_EQ(ids_of(bytes_bpe("qwen2").put(kBegin + "unknown_token_id", uint32_t{5}), "a!b"),
            (Ids{0, 1}));
  const std::string file = bytes_bpe("qwen2").file();
  const TokenizerTables tables = read_gguf_tokenizer(parse_gguf(file, "m.gguf"));
  EXPECT_TRUE(tables.nfc);
  EXPECT_EQ(tables.vocabulary->kind(7), TokenKind::kNone);
  EXPECT_EQ(tables.vocabulary->kind(8), TokenKind::kNone);
  ASSERT_EQ(tables.added.size(), 2u);
  EXPECT_TRUE(tables.added[0].special);
  EXPECT_FALSE(tables.added[1].special);
}

TEST(GgufTokenizer, BeginsTextsAsTheFileOrItsKindSays) {
  const auto bos = [](const char* pre) {
    return std::move(bytes_bpe(pre).put(kBegin + "bos_token_id", uint32_t{5}));
  };
  EXPECT_EQ(ids_of(bos("qwen2"), "a", true), (Ids{0}));
  EXPECT_EQ(ids_of(bos("llama-bpe"), "a", true), (Ids{5, 0}));
  EXPECT_EQ(ids_of(bos("llama-bpe").put(kBegin + "add_bos_token", false), "a", true), (Ids{0}));
  EXPECT_EQ(ids_of(bos("qwen2").put(kBegin + "add_bos_token", true), "a", true), (Ids{5, 0}));
  EXPECT_HAS(fault_of(bytes_bpe("qwen2").put(kBegin + "add_eos_token", true)), "add_eos_token");
}

// Ids 0-2 as ever; "▁" 3, a 4, b 5, "ab" 6, "▁a" 7, then a token that is stored with spaces.
GgufWriter pieces() {
  return tokenizer("llama",
                   {"<unk>", "<s>", "</s>", kSpace, "a", "b", "ab", kSpace + "a", "  ", "<x>"},
                   {2, 3, 3, 1, 1, 1, 1, 1, 4, 3});
}
const std::vector<int32_t> kScores = {0, 0, 0, -9, -8, -7, -1, -2, 0, 0};

TEST(GgufTokenizer, ReadsPiecesByTheirScores) {
  GgufWriter whole = pieces().put(kBegin + "scores", kScores);
  EXPECT_EQ(ids_of(whole, "ab", true), (Ids{1, 3, 6}));      // ab before ▁a
  EXPECT_EQ(ids_of(whole, "a<x>a"), (Ids{7, 9, 7}));         // a space behind added tokens, too
  EXPECT_EQ(ids_of(whole, "a  \u00e9"), (Ids{7, 8, 3, 0}));  // no bytes: unknown
  GgufWriter plain = whole;
  plain.put(kBegin + "add_space_prefix", false).put(kBegin + "add_eos_token", true);
  EXPECT_EQ(ids_of(plain, "ab", true), (Ids{1, 6, 2}));
  GgufWriter floats =
      pieces().put(kBegin + "scores", std::vector<float>{0, 0, 0, -9, -8, -7, -2.5F, -2.25F, 0, 0});
  EXPECT_EQ(ids_of(floats, "ab"), (Ids{7, 5}));
}

TEST(GgufTokenizer, ReadsPiecesWithMerges) {
  GgufWriter gemma = tokenizer("gemma4", {"<unk>", "a", "b", "ab", kSpace, kSpace + "a", "  "},
                               {2, 1, 1, 1, 1, 1, 4});
  gemma.put(kBegin + "unknown_token_id", uint32_t{0});
  // The middle one makes a run of spaces, which is an added token.
  gemma.put(kBegin + "merges", Texts{kSpace + " a", kSpace + " " + kSpace, "a b"});
  EXPECT_EQ(ids_of(gemma, "ab ab  b"), (Ids{3, 5, 2, 6, 2}));
}

TEST(GgufTokenizer, UnknownCharactersBecomeBytesOnlyIfAllAreThere) {
  Texts tokens = {"<unk>", "<s>", "</s>", kSpace};
  Types types = {2, 3, 3, 1};
  std::vector<float> scores(260, 0.0F);
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(byte));
    tokens.emplace_back(text);
    types.push_back(6);
  }
  GgufWriter whole = tokenizer("llama", tokens, types).put(kBegin + "scores", scores);
  EXPECT_EQ(ids_of(whole, "\u00e9"), (Ids{3, 4 + 0xC3, 4 + 0xA9}));
  tokens.pop_back();
  types.pop_back();
  scores.pop_back();
  EXPECT_HAS(fault_of(tokenizer("llama", tokens, types).put(kBegin + "scores", scores)), "255");
}

TEST(GgufTokenizer, ReadsUnigramAndWordPiece) {
  GgufWriter unigram =
      tokenizer("t5", {"<pad>", "</s>", "<unk>", kSpace + "a", "b", kSpace}, {3, 3, 2, 1, 1, 1});
  unigram.put(kBegin + "scores", std::vector<float>{0, 0, 0, -1, -2, -3});
  EXPECT_EQ(ids_of(unigram, "ab", true), (Ids{3, 4, 1}));
  const Texts words = {"[CLS]", "[SEP]", "[UNK]", kSpace + "ab", "c", kSpace + "c"};
  const Types types = {3, 3, 3, 1, 1, 1};
  EXPECT_EQ(ids_of(tokenizer("bert", words, types), "ABc c d", true), (Ids{0, 3, 4, 5, 2, 1}));
  Texts cased = words;
  cased[3] = kSpace + "AB";
  EXPECT_EQ(ids_of(tokenizer("bert", cased, types), "ABc abc"), (Ids{3, 4, 2}));
}

TEST(GgufTokenizer, RefusesWhatDoesNotFit) {
  EXPECT_HAS(fault_of(GgufWriter(), ErrorCode::kUnsupported), "gpt2, llama, gemma4, t5, bert");
  EXPECT_HAS(fault_of(bytes_bpe(nullptr), ErrorCode::kUnsupported), "known are gpt-2, ");
  EXPECT_HAS(fault_of(bytes_bpe("other"), ErrorCode::kUnsupported), "\"other\"");
  EXPECT_HAS(fault_of(bytes_bpe("qwen2", 8)), "tokenizer.ggml.token_type");
  EXPECT_HAS(fault_of(pieces()), "tokenizer.ggml.scores");
  EXPECT_HAS(fault_of(pieces().put(kBegin + "scores", std::vector<float>{1})),
             "has 1 entries for 10 tokens");
  for (const char* role : {"bos", "eos", "eot", "unknown", "seperator", "padding", "fim_pre"}) {
    const std::string key = kBegin + role + "_token_id";
    EXPECT_HAS(fault_of(bytes_bpe("qwen2").put(key, uint32_t{9})), key);
    EXPECT_HAS(fault_of(bytes_bpe("qwen2").put(key, int32_t{-1})), key);
  }
  EXPECT_HAS(fault_of(tokenizer("gpt2", {"a"}, {7}).put(kBegin + "pre", "qwen2")),
             "the unknown type 7");
  EXPECT_HAS(fault_of(tokenizer("gpt2", {"\xff"}, {1}).put(kBegin + "pre", "qwen2")), "UTF-8");
  const auto merged = [](const char* merge) {
    return fault_of(tokenizer("gpt2", {"a", " b"}, {1, 1})
                        .put(kBegin + "pre", "qwen2")
                        .put(kBegin + "merges", Texts{merge}));
  };
  EXPECT_HAS(merged("ab"), "is not two tokens");
  EXPECT_HAS(merged(" b"), "is not two tokens");  // its space is at position 0
  EXPECT_HAS(merged("a a"), "lacks");
}

TEST(GgufTokenizer, KnowsWhatEndsAnswers) {
  const auto stops = [](const Texts& tokens, const Types& types) {
    GgufWriter made = tokenizer("gpt2", tokens, types);
    made.put(kBegin + "eos_token_id", uint32_t{0}).put(kBegin + "eot_token_id", uint32_t{1});
    const std::string file = made.file();
    return gguf_stop_ids(parse_gguf(file, "m.gguf"));
  };
  EXPECT_EQ(stops({"x", "y", "<|im_end|>", "</s>", "<|end|>"}, {3, 3, 3, 1, 4}), (Ids{0, 1, 2, 4}));
  EXPECT_EQ(stops({"x", "y", "<|end|>", "<|return|>", "<|call|>"}, {3, 3, 3, 3, 3}),
            (Ids{0, 1, 3, 4}));
}

TEST(GgufTokenizer, HasTemplatesByName) {
  const auto templates = [](const GgufWriter& writer) {
    const std::string file = writer.file();
    return gguf_chat_templates(parse_gguf(file, "m.gguf"));
  };
  GgufWriter made;
  made.put("tokenizer.chat_template", "A").put("tokenizer.chat_templates", Texts{"rag"});
  EXPECT_HAS(fault_of([&] { templates(made); }, ErrorCode::kCorruptFile),
             "tokenizer.chat_template.rag");
  made.put("tokenizer.chat_template.rag", "B");
  EXPECT_EQ(templates(made),
            (std::map<std::string, std::string, std::less<>>{{"default", "A"}, {"rag", "B"}}));
  EXPECT_TRUE(templates(GgufWriter()).empty());
}

TEST(GgufTokenizer, APathMayBeAFile) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("headrace_" + std::to_string(getpid()) + ".gguf");
  const auto load = [&](GgufWriter writer) {
    std::ofstream(path, std::ios::binary) << writer.file();
    return Tokenizer::load(path.string());
  };
  GgufWriter made = bytes_bpe("qwen2");
  made.put(kBegin + "eos_token_id", uint32_t{5});
  const auto own = load(made);
  Ids ids;
  own->encode("ab<s>", {}, &ids, nullptr);
  EXPECT_EQ(ids, (Ids{2, 5}));
  EXPECT_EQ(own->decode(Ids{3, 6, 5}, true), " aa b");
  ASSERT_EQ(own->special().size(), 1u);
  EXPECT_EQ(*read_tokenizer_config(path.string()).special_token("eos_token"), "<s>");
  made.put("tokenizer.huggingface.json",
           R"({"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})");
  load(made)->encode("ab", {}, &ids, nullptr);
  EXPECT_EQ(ids, (Ids{0, 1}));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace headrace::text
