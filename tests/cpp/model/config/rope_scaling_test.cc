#include "model/config/rope_scaling.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cpp/model/expect_error.h"
#include "cpp/model/golden_case.h"
#include "model/config/model_config.h"
#include "model/json/json.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

// A power that is not rounded correctly (torch's may be 1 ulp off) and its reciprocal.
constexpr double kTwoUlps = 2 * 0x1p-23;

class GoldenRope : public testing::TestWithParam<std::string> {};

TEST_P(GoldenRope, FrequenciesMatchToTheLastBits) {
  const GoldenCase golden = load_golden_case(GetParam());
  const RopeSpec rope = load_model_config(golden.folder).rope;
  ASSERT_EQ(rope.inv_freq.size(), golden.inv_freq.size());
  for (size_t i = 0; i < rope.inv_freq.size(); ++i) {
    EXPECT_NEAR(rope.inv_freq[i], golden.inv_freq[i], kTwoUlps * golden.inv_freq[i]) << i;
  }
  EXPECT_EQ(rope.attention_factor, static_cast<float>(golden.attention_factor));
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenRope, testing::ValuesIn(golden_case_names()));

RopeScaling read(const std::string& text, double default_theta = 10000.0, int64_t max = 4096) {
  const JsonValue json = parse_json_object(text, "config.json", JsonLimits{});
  ConfigReader reader(json, "config.json");
  return read_rope_scaling(reader, {.theta = default_theta, .max_position_embeddings = max});
}

TEST(RopeScalingKeys, DefaultsAndPrecedence) {
  EXPECT_EQ(read("{}", 500000.0).theta, 500000.0);
  EXPECT_EQ(read(R"({"rope_theta":1000000})").theta, 1000000.0);
  EXPECT_EQ(read(R"({"rope_theta":7.0,"rope_parameters":{"rope_theta":9.0}})").theta, 9.0);
  EXPECT_EQ(read(R"({"rope_scaling":null})").kind, RopeKind::kDefault);
  // A non-empty rope_scaling goes before rope_parameters; rope_type before type.
  const RopeScaling both = read(R"({"rope_scaling":{"type":"linear","factor":2.0},
                                    "rope_parameters":{"rope_type":"yarn","factor":3.0}})");
  EXPECT_EQ(both.kind, RopeKind::kLinear);
  EXPECT_EQ(both.factor, 2.0);
  EXPECT_EQ(read(R"({"rope_scaling":{},"rope_parameters":{"type":"yarn","factor":3.0}})").factor,
            3.0);
  EXPECT_EQ(read(R"({"rope_scaling":{"type":"su","rope_type":"linear","factor":2}})").kind,
            RopeKind::kLinear);
}

TEST(RopeScalingKeys, OriginalLength) {
  const std::string yarn = R"("rope_scaling":{"type":"yarn","factor":4.0)";
  EXPECT_EQ(read("{" + yarn + "}}").original_length, 4096);
  EXPECT_EQ(read("{" + yarn + R"(,"original_max_position_embeddings":64}})").original_length, 64);
  EXPECT_EQ(read(R"({"original_max_position_embeddings":32,)" + yarn +
                 R"(,"original_max_position_embeddings":64}})")
                .original_length,
            32);
  // Dynamic scaling goes by max_position_embeddings whatever else is there.
  EXPECT_EQ(read(R"({"rope_scaling":{"type":"dynamic","factor":2,"alpha":1000,
                     "original_max_position_embeddings":64}})")
                .original_length,
            4096);
}

TEST(RopeScalingKeys, YarnDefaults) {
  const RopeScaling scaling =
      read(R"({"rope_scaling":{"rope_type":"yarn","factor":null,"beta_fast":0,"beta_slow":null,
               "original_max_position_embeddings":1024}})");
  EXPECT_EQ(scaling.factor, 4.0);
  EXPECT_EQ(scaling.beta_fast, 32.0);
  EXPECT_EQ(scaling.beta_slow, 1.0);
  EXPECT_TRUE(scaling.truncate);
}

TEST(RopeScalingKeys, Refused) {
  const auto refuse = [](ErrorCode code, const std::string& config, const std::string& message) {
    expect_error(code, {"config.json", message}, [&] { read(config); });
  };
  const auto unsupported = ErrorCode::kUnsupported, corrupt = ErrorCode::kCorruptFile;
  refuse(unsupported, R"({"rope_scaling":{"type":"longrope","factor":2}})", "\"longrope\"");
  refuse(unsupported, R"({"rope_scaling":{"type":"mrope","mrope_section":[1]}})", "\"mrope\"");
  refuse(unsupported, R"({"rope_scaling":{"type":"default","mrope_section":[1]}})",
         "mrope_section");
  refuse(unsupported, R"({"rope_parameters":{"full_attention":{"rope_theta":1}}})",
         "full_attention");
  refuse(unsupported, R"({"rope_parameters":{"partial_rotary_factor":0.5}})",
         "partial_rotary_factor");
  refuse(corrupt, R"({"rope_scaling":"yarn"})", "rope_scaling");
  refuse(corrupt, R"({"rope_scaling":{"type":3}})", "type");
  refuse(corrupt, R"({"rope_scaling":{"type":"linear"}})", "factor");
  refuse(corrupt, R"({"rope_scaling":{"type":"linear","factor":0}})", "factor");
  refuse(corrupt, R"({"rope_scaling":{"type":"linear","factor":"2"}})", "factor");
  refuse(corrupt, R"({"rope_theta":0})", "rope_theta");
  refuse(corrupt, R"({"rope_theta":1})", "rope_theta");
  refuse(corrupt, R"({"rope_theta":1e300})", "rope_theta");
  refuse(corrupt, R"({"rope_scaling":{"type":"llama3","factor":8,"low_freq_factor":1}})",
         "high_freq_factor");
  refuse(corrupt,
         R"({"rope_scaling":{"type":"llama3","factor":8,"low_freq_factor":4,
             "high_freq_factor":4}})",
         "high_freq_factor");
  refuse(corrupt,
         R"({"rope_scaling":{"type":"yarn","factor":8,"original_max_position_embeddings":0}})",
         "original_max_position_embeddings");
}

TEST(RopeScaling, LinearDividesAndDynamicRecords) {
  const RopeSpec plain = make_rope({}, RopeStyle::kNeox, 64);
  const RopeSpec linear =
      make_rope({.kind = RopeKind::kLinear, .factor = 4.0}, RopeStyle::kNeox, 64);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(linear.inv_freq[i], plain.inv_freq[i] / 4);
  const RopeSpec dynamic = make_rope(
      {.kind = RopeKind::kDynamic, .theta = 5000.0, .factor = 3.0, .original_length = 128},
      RopeStyle::kInterleaved, 64);
  EXPECT_EQ(dynamic.dynamic_original_max, 128);
  EXPECT_EQ(dynamic.dynamic_base, 5000.0);
  EXPECT_EQ(dynamic.dynamic_factor, 3.0);
  EXPECT_EQ(dynamic.style, RopeStyle::kInterleaved);
}

TEST(RopeScaling, YarnAttentionFactor) {
  RopeScaling s{.kind = RopeKind::kYarn, .factor = 8.0, .original_length = 64};
  const auto factor = [&s] { return make_rope(s, RopeStyle::kNeox, 64).attention_factor; };
  EXPECT_FLOAT_EQ(factor(), static_cast<float>(0.1 * std::log(8.0) + 1.0));
  s.mscale = 2.0;  // alone: ignored
  EXPECT_FLOAT_EQ(factor(), static_cast<float>(0.1 * std::log(8.0) + 1.0));
  s.mscale_all_dim = 2.0;
  EXPECT_FLOAT_EQ(factor(), 1.0f);
  s.attention_factor = 0.75;
  EXPECT_FLOAT_EQ(factor(), 0.75f);
  s = {.kind = RopeKind::kYarn, .factor = 0.5, .original_length = 64};
  EXPECT_FLOAT_EQ(factor(), 1.0f);
}

}  // namespace
}  // namespace headrace
