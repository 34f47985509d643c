// Folders that were made to cost more than they should.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "headrace/status.h"
#include "headrace/text.h"

namespace headrace {
namespace {

constexpr const char* kModel = R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})";

/// A folder of one tokenizer, for one test.
class HostileFolder : public testing::Test {
 protected:
  HostileFolder()
      : folder_(std::filesystem::temp_directory_path() /
                ("headrace_text_" + std::to_string(getpid()) + "_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directory(folder_);
    write("tokenizer_config.json", "{}");
  }
  ~HostileFolder() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  std::shared_ptr<const Tokenizer> load(const std::string& model, const std::string& others = "") {
    write("tokenizer.json", R"({"version":"1.0",)" + others + R"("model":)" + model + "}");
    return Tokenizer::load(folder_.string());
  }
  ErrorCode code_of(const std::string& model, const std::string& others = "") {
    return error_of(model, others).code();
  }
  Error error_of(const std::string& model, const std::string& others = "") {
    try {
      load(model, others);
    } catch (const Error& error) {
      return error;
    }
    return {ErrorCode::kOk, ""};
  }

 private:
  std::filesystem::path folder_;
};

std::string repeated(const std::string& text, size_t times) {
  std::string all = text;
  for (size_t i = 1; i < times; ++i) all += "," + text;
  return all;
}

std::string post_processor(const std::string& pieces, const std::string& ids) {
  return R"("post_processor":{"type":"TemplateProcessing","pair":[],"single":[)" + pieces +
         R"(],"special_tokens":{"x":{"id":"x","tokens":["x"],"ids":[)" + ids + "]}}},";
}

constexpr const char* kText = R"({"Sequence":{"id":"A","type_id":0}})";
constexpr const char* kSpecial = R"({"SpecialToken":{"id":"x","type_id":0}})";

TEST_F(HostileFolder, BytesOfAffixesAreRefused) {
  std::string vocab = R"("a":256)";
  constexpr const char* kDigits = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    vocab += std::string(",\"<0x") + kDigits[byte / 16] + kDigits[byte % 16] +
             ">\":" + std::to_string(byte);
  }
  const std::string model = R"({"type":"BPE","byte_fallback":true,"merges":[],"vocab":{)" + vocab;
  EXPECT_EQ(code_of(model + "}}"), ErrorCode::kOk);
  EXPECT_EQ(code_of(model + R"(},"end_of_word_suffix":"</w>"})"), ErrorCode::kUnsupported);
}

TEST_F(HostileFolder, TemplatesMultiplyNothing) {
  EXPECT_EQ(code_of(kModel, post_processor(std::string(kSpecial) + "," + kText, "0,1")),
            ErrorCode::kOk);
  EXPECT_EQ(code_of(kModel, post_processor(repeated(kSpecial, 100), repeated("0", 100))),
            ErrorCode::kLimitExceeded);
  EXPECT_EQ(code_of(kModel, post_processor(repeated(kText, 2), "0")), ErrorCode::kUnsupported);
  EXPECT_EQ(code_of(kModel, post_processor(kSpecial, "3")), ErrorCode::kCorruptFile);
}

TEST_F(HostileFolder, ManySpecialTokensAreLookedUpOnce) {
  std::string tokens;
  for (int i = 0; i < 60'000; ++i) tokens += (i > 0 ? ",\"t" : "\"t") + std::to_string(i) + "\"";
  write("tokenizer_config.json",
        R"({"bos_token":"t1","additional_special_tokens":[)" + tokens + R"(,"t1","t2"]})");
  const std::vector<SpecialToken> found = load(kModel)->special();
  ASSERT_EQ(found.size(), 60'000u);
  EXPECT_EQ(found[0].role, "bos_token");
  EXPECT_EQ(found[1].text, "t0");
  EXPECT_EQ(found[2].text, "t2");
}

TEST_F(HostileFolder, ErrorsQuoteAPartOfLongValues) {
  const std::string name(1'000'000, 'x');
  std::vector<std::string> errors = {
      error_of(R"({"type":")" + name + "\"}").what(),
      error_of(kModel, R"("added_tokens":[{"content":")" + name + "\"}],").what(),
      error_of(kModel, R"("normalizer":{"type":")" + name + "\"},").what()};
  for (const char* part : {R"({"%":"x"})", R"({"9999999":"%"})", R"({"%":1})"}) {
    std::string decoder = part;
    decoder.replace(decoder.find('%'), 1, name);
    write("tokenizer_config.json", R"({"added_tokens_decoder":)" + decoder + "}");
    errors.push_back(error_of(kModel).what());
  }
  for (const std::string& error : errors) {
    EXPECT_NE(error.find(".json: "), std::string::npos) << error.substr(0, 1000);
    EXPECT_LT(error.size(), 1000u);
  }
}

TEST_F(HostileFolder, AnyBoundOnTokensMayBeGiven) {
  const auto tokenizer = load(kModel);
  const std::string text(100'000, 'a');
  std::vector<int32_t> ids;
  tokenizer->encode(text, {.max_tokens = SIZE_MAX / 2 + 1}, &ids);
  EXPECT_EQ(ids.size(), text.size());
  EXPECT_THROW(tokenizer->encode(text, {.max_tokens = 49'999}, &ids), Error);
}

TEST_F(HostileFolder, AddedTokensShareTheStepsOfNormalizing) {
  const std::string slow =
      R"("normalizer":{"type":"Replace","pattern":{"Regex":"(a|aa)+$"},"content":"x"},)";
  const auto added = [](int count) {
    std::string tokens;
    for (int i = 0; i < count; ++i) {
      tokens += std::string(i > 0 ? "," : "") + R"({"content":")" + std::string(18, 'a') +
                std::to_string(i) + R"(","single_word":false,"lstrip":false,"rstrip":false,)" +
                R"("normalized":true,"special":false,"id":)" + std::to_string(3 + i) + "}";
    }
    return R"("added_tokens":[)" + tokens + "],";
  };
  EXPECT_EQ(code_of(kModel, slow + added(1)), ErrorCode::kOk);
  EXPECT_EQ(code_of(kModel, slow + added(200)), ErrorCode::kLimitExceeded);
}

TEST_F(HostileFolder, NormalizersAndValuesAreCounted) {
  const auto steps = [](size_t count) {
    return R"("normalizer":{"type":"Sequence","normalizers":[)" +
           repeated(R"({"type":"Lowercase"})", count) + "]},";
  };
  EXPECT_EQ(code_of(kModel, steps(255)), ErrorCode::kOk);
  EXPECT_EQ(code_of(kModel, steps(256)), ErrorCode::kLimitExceeded);
  EXPECT_EQ(code_of(kModel, R"("decoder":[)" + repeated("0", (1u << 21) + 1) + "],"),
            ErrorCode::kLimitExceeded);
}

}  // namespace
}  // namespace headrace
