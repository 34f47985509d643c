#include "text/files/tokenizer_json.h"

#include <gtest/gtest.h>

#include <string>

#include "headrace/status.h"

namespace headrace::text {
namespace {

constexpr const char* kModel = R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})";

std::string file(const std::string& model, const std::string& others = "") {
  return R"({"version":"1.0","truncation":{"max_length":1},"padding":null,)" + others +
         R"("model":)" + model + "}";
}

std::string error_of(const std::string& text) {
  try {
    read_tokenizer_json(text);
  } catch (const Error& error) {
    return std::string(error_code_name(error.code())) + ": " + error.what();
  }
  return "";
}

void expect_error(const std::string& text, const std::string& code, const std::string& part) {
  const std::string error = error_of(text);
  EXPECT_TRUE(error.starts_with(code) && error.find(part) != std::string::npos) << text << "\n"
                                                                                << error;
}

TEST(TokenizerJson, ReadsAModel) {
  const TokenizerParts parts = read_tokenizer_json(file(kModel));
  EXPECT_EQ(parts.vocabulary->count(), 3);
  EXPECT_EQ(parts.normalizer, nullptr);
  EXPECT_EQ(parts.splitter.splitter, nullptr);
  EXPECT_TRUE(parts.decoder.is_null());
  EXPECT_TRUE(parts.added.all().empty());
}

TEST(TokenizerJson, ThePreTokenizerMayComeBehindTheModel) {
  const std::string text = R"({"model":{"merges":[],"vocab":{"\u0120":0},"type":"BPE"},)"
                           R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false}})";
  const TokenizerParts parts = read_tokenizer_json(text);
  EXPECT_TRUE(parts.splitter.byte_level);
  EXPECT_EQ(parts.vocabulary->bytes(0), " ");
}

TEST(TokenizerJson, WrongFilesAreErrors) {
  const std::string corrupt = "corrupt_file";
  expect_error("", corrupt, "at byte 0");
  expect_error("[]", corrupt, "expected an object");
  expect_error("{}", corrupt, "no model");
  expect_error(file(kModel) + "x", corrupt, "something follows");
  expect_error(R"({"version":"2.0"})", corrupt, "unknown version");
  expect_error(file(kModel, R"("model":null,)"), corrupt, "had before");
  expect_error(file(kModel, R"("decoder":null,"decoder":null,)"), corrupt, "had before");
  expect_error(file(R"({"type":"BPE","merges":[]})"), corrupt, "no vocab");
  expect_error(file(R"({"type":"BPE","vocab":{}})"), corrupt, "no merges");
  expect_error(file(R"({"type":"BPE","vocab":{"a":0,"a":1},"merges":[]})"), corrupt,
               "\"a\" is there twice");
  expect_error(file(R"({"type":"BPE","vocab":{"a":0,"b":0},"merges":[]})"), corrupt,
               "given to two tokens");
  expect_error(file(R"({"type":"BPE","vocab":{"a":-1},"merges":[]})"), corrupt, "must be in 0..");
  expect_error(file(R"({"type":"BPE","vocab":{"a":4194304},"merges":[]})"), corrupt,
               "must be in 0..");
  expect_error(file(R"({"type":"BPE","vocab":{"a":0.5},"merges":[]})"), corrupt, "must be in 0..");
  expect_error(file(R"({"type":"BPE","vocab":{"\ud800":0},"merges":[]})"), corrupt,
               "lone surrogate");
  expect_error(file(R"({"type":"BPE","vocab":{"a":0},"merges":["a b"]})"), corrupt,
               "a token that the vocabulary lacks");
  expect_error(file(R"({"type":"BPE","vocab":{"a":0},"merges":["a"]})"), corrupt, "two tokens");
  expect_error(file(R"({"type":"BPE","vocab":{"a":0},"merges":[["a"]]})"), corrupt,
               "expected a token");
  expect_error(file(R"({"type":"BPE","vocab":{"a":0},"merges":[],"unk_token":"u"})"), corrupt,
               "lacks its unk_token");
  expect_error(file(R"({"type":"WordLevel","vocab":{"a":0}})"), "unsupported", "WordLevel");
  expect_error(file(R"({"type":"Unigram","vocab":{"a":0}})"), corrupt, "not one of a Unigram");
}

TEST(TokenizerJson, AddedTokensNeedTheIdsThatTheyGet) {
  const auto added = [](const std::string& id) {
    return R"("added_tokens":[{"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,)"
           R"("normalized":false,"special":true,"id":)" +
           id + "}],";
  };
  EXPECT_EQ(error_of(file(kModel, added("3"))), "");
  expect_error(file(kModel, added("4")), "corrupt_file", "from its place in the file it is 3");
  expect_error(file(kModel, added("\"3\"")), "corrupt_file", "\"id\" must be an id");
  expect_error(file(kModel, R"("added_tokens":[{"id":3}],)"), "corrupt_file", "\"content\"");
}

TEST(TokenizerJson, NestedFilesAreErrors) {
  expect_error(file(kModel, R"("decoder":)" + std::string(200, '[')), "limit_exceeded", "nested");
  expect_error(file(std::string(200, '{')), "corrupt_file", "expected a key");
}

}  // namespace
}  // namespace headrace::text
