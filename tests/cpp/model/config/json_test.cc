#include "model/json/json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/thread_time.h"
#include "cpp/model/expect_error.h"
#include "cpp/model/test_json.h"
#include "model/checkpoint/safetensors.h"
#include "model/config/config_reader.h"
#include "model/load/load_config.h"
#include "model/lora/lora_config.h"

namespace headrace {
namespace {

constexpr JsonLimits kSmall{.max_bytes = 4096, .max_depth = 3, .max_values = 32};

JsonValue parse(const std::string& text, const JsonLimits& limits = {}) {
  return parse_json_object(text, "x.json", limits);
}

void expect_refused(const std::string& text, const std::string& fault,
                    const JsonLimits& limits = kSmall) {
  SCOPED_TRACE(text.substr(0, 80));
  expect_error(ErrorCode::kCorruptFile, {"x.json", fault}, [&] { parse(text, limits); });
}

TEST(Json, ReadsEveryKindOfValue) {
  const std::string text =
      R"( {"a": [1, -2, 0.5, true, false, null, "tex\u0074", {"b": {}}, []], "big": 18446744073709551615} )";
  const JsonValue json = parse(text);
  EXPECT_EQ(Json::parse(json_text(json)), Json::parse(text));
  const JsonValue::Array& list = json.find("a")->array();
  EXPECT_EQ(list[0].unsigned_integer(), 1u);
  EXPECT_EQ(list[1].integer(), -2);
  EXPECT_FALSE(list[1].is_unsigned());
  EXPECT_EQ(list[2].number(), 0.5);
  EXPECT_FALSE(list[2].is_whole());
  EXPECT_TRUE(list[3].boolean());
  EXPECT_FALSE(list[4].boolean());
  EXPECT_TRUE(list[5].is_null());
  EXPECT_EQ(list[6].text(), "text");
  EXPECT_TRUE(list[7].find("b")->object().empty());
  EXPECT_TRUE(list[8].array().empty());
  EXPECT_EQ(json.find("big")->unsigned_integer(), 18446744073709551615u);
}

TEST(Json, AValueOfAnotherKindIsNotRead) {
  const JsonValue json = parse(R"({"a": [1.5, "x", -1, 9223372036854775808]})");
  const JsonValue::Array& list = json.find("a")->array();
  EXPECT_THROW(list[0].integer(), InternalError);
  EXPECT_THROW(list[1].number(), InternalError);
  EXPECT_THROW(list[1].object(), InternalError);
  EXPECT_THROW(list[2].unsigned_integer(), InternalError);
  EXPECT_THROW(list[3].integer(), InternalError);
  EXPECT_THROW(json.array(), InternalError);
  EXPECT_EQ(list[1].find("a"), nullptr);
}

TEST(Json, NumbersAreEqualHoweverTheyAreWritten) {
  const JsonValue json = parse(R"({"a": [1, 1.0, 1e0, -1, -1.0, 18446744073709551615]})");
  const JsonValue::Array& list = json.find("a")->array();
  EXPECT_EQ(list[0], list[1]);
  EXPECT_EQ(list[1], list[2]);
  EXPECT_EQ(list[0], JsonValue(1));
  EXPECT_EQ(list[3], list[4]);
  EXPECT_NE(list[0], list[3]);
  EXPECT_NE(list[3], list[5]);
  EXPECT_NE(list[0], JsonValue(true));
  EXPECT_NE(JsonValue("1"), JsonValue(1));
  EXPECT_NE(JsonValue(), JsonValue(0));
}

TEST(Json, CopiesAreDeepAndWhatWasMovedIsNull) {
  JsonValue json = parse(R"({"a": {"b": [1, {"c": "text"}]}})");
  const JsonValue copy = json;
  EXPECT_EQ(copy, json);
  json.object()["a"].object()["b"].array().clear();
  EXPECT_NE(copy, json);
  EXPECT_EQ(json_text(copy), R"({"a":{"b":[1,{"c":"text"}]}})");
  const JsonValue moved = std::move(json);
  EXPECT_EQ(json_text(moved), R"({"a":{"b":[]}})");
  EXPECT_TRUE(json.is_null());
}

TEST(Json, TextIsWrittenAsUtf8OrAsAscii) {
  const JsonValue json(JsonValue::Object{{"k", "\u00e9\n"}, {"n", 0.1}});
  EXPECT_EQ(json_text(json), "{\"k\":\"\u00e9\\n\",\"n\":0.1}");
  EXPECT_EQ(ascii_json_text(json), R"({"k":"\u00e9\n","n":0.1})");
  EXPECT_EQ(ascii_json_text(JsonValue("\xff")), R"("\ufffd")");
}

TEST(Json, AKeyBelongsToItsOwnObjectOnly) {
  const JsonValue json = parse(R"({"a": {"a": 1, "b": {"a": 2}}, "b": [{"a": 3}, {"a": 4}]})");
  EXPECT_EQ(json.find("a")->find("b")->find("a")->integer(), 2);
  EXPECT_EQ(json.find("b")->array()[1].find("a")->integer(), 4);
}

TEST(Json, DuplicateKeysAreRefused) {
  expect_refused(R"({"a": 1, "b": 2, "a": 1})", "\"a\" twice");
  expect_refused(R"({"a": 1, "\u0061": {}})", "\"a\" twice");
  expect_refused(R"({"o": {"k": [], "k": []}})", "\"k\" twice");
}

TEST(Json, HostileNumbersAreRefused) {
  for (const char* number : {"1e309", "-1e999", "1e99999999999999999999"}) {
    expect_refused(std::string(R"({"a": )") + number + "}", "out of range");
  }
  for (const char* number :
       {"NaN", "nan", "Infinity", "-Infinity", "-", "+1", "01", "1.", ".5", "1e", "0x10", "--1"}) {
    expect_refused(std::string(R"({"a": )") + number + "}", "not valid JSON at byte");
  }
  const std::string digits(1000, '9');
  expect_refused(R"({"a": )" + digits + "}", "out of range");
  EXPECT_EQ(parse(R"({"a": 0.)" + digits + "}").find("a")->number(), 1.0);
  EXPECT_EQ(parse(R"({"a": 1e-999})").find("a")->number(), 0.0);
  EXPECT_FALSE(parse(R"({"a": 18446744073709551616})").find("a")->is_whole());
}

TEST(Json, LimitsHold) {
  EXPECT_NO_THROW(parse(R"({"a": {"b": [1]}})", kSmall));
  expect_refused(R"({"a": {"b": [[1]]}})", "deeper than 3");
  expect_refused(R"({"a": )" + std::string(2000, '['), "deeper than 3");
  expect_refused(R"({"a": [0)" + std::string(31 * 2, ' ') + "]}" + std::string(4096, ' '),
                 "at most 4096");
  std::string many = R"({"a": [0)";
  for (int i = 0; i < 40; ++i) many += ",0";
  expect_refused(many + "]}", "more than 32 values");
}

TEST(Json, WhatIsNoObjectIsRefused) {
  for (const char* text : {"[]", "1", "null", "\"a\""}) expect_refused(text, "not an object");
  for (const char* text : {"", " ", "{", "{}}", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{} {}",
                           "{\"a\":\"\xff\"}", "{\"a\":\"\\ud800\"}", "{/**/}"}) {
    expect_refused(text, "not valid JSON at byte");
  }
}

// --- time ---------------------------------------------------------------------------------------

/// CPU seconds of the fastest of three runs.
double seconds_of(const std::function<void()>& work) {
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const int64_t start = thread_cpu_nanoseconds(this_thread_id());
    work();
    best = std::min(best,
                    1e-9 * static_cast<double>(thread_cpu_nanoseconds(this_thread_id()) - start));
  }
  return best;
}

/// Four times the size takes about four times as long; quadratic work would take sixteen times.
void expect_linear(const std::function<std::string(int)>& make,
                   const std::function<void(const std::string&)>& read) {
  constexpr int kSize = 10'000;
  const std::string small = make(kSize), large = make(4 * kSize);
  const double one = seconds_of([&] { read(small); }), four = seconds_of([&] { read(large); });
  EXPECT_LT(four, 9 * one) << one << " s and " << four << " s";
}

std::string list_members(int count, const std::function<std::string(int)>& member) {
  std::string out = "{";
  for (int i = 0; i < count; ++i) {
    if (i > 0) out += ',';
    out += member(i);
  }
  out += '}';
  return out;
}

TEST(JsonTime, AHeaderOfManyTensorsIsLinear) {
  expect_linear(
      [](int count) {
        return list_members(count, [](int i) {
          return str_cat("\"t", i, R"(":{"dtype":"U8","shape":[1],"data_offsets":[)", i, ",", i + 1,
                         "]}");
        });
      },
      [](const std::string& header) {
        const auto count = static_cast<uint64_t>(std::count(header.begin(), header.end(), '{') - 1);
        EXPECT_EQ(parse_safetensors_header(header, count, "x").size(), count);
      });
}

TEST(JsonTime, ManyObjectsInAConfigAreLinear) {
  expect_linear(
      [](int count) {
        return list_members(count, [](int i) { return str_cat("\"k", i, "\":{}"); });
      },
      [](const std::string& text) {
        const JsonValue json = parse(text, kConfigLimits);
        ConfigReader(json, "x.json").refuse_unknown_keys({});
      });
}

TEST(JsonTime, ManyObjectsInAnAdaptersConfigAreLinear) {
  expect_linear(
      [](int count) {
        return R"({"peft_type":"LORA","loftq_config":)" +
               list_members(count, [](int i) { return str_cat("\"k", i, "\":{}"); }) + "}";
      },
      [](const std::string& text) { EXPECT_EQ(parse_lora_config(text).r, 8); });
}

TEST(JsonTime, ManyEndTokensAreLinear) {
  const std::string config = R"({"model_type":"qwen3","vocab_size":200000})";
  const auto ids = [](int count) {
    std::string out = R"({"eos_token_id":[0)";
    for (int i = 1; i < 4 * count; ++i) out += str_cat(",", i);
    return out + "]}";
  };
  expect_linear(ids, [&](const std::string& text) {
    EXPECT_GE(parse_model_config(config, text).eos_token_ids.size(), 10'000u);
  });
}

}  // namespace
}  // namespace headrace
