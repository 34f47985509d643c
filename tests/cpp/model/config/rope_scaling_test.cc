#include "model/config/rope_scaling.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cpp/model/expect_error.h"
#include "cpp/model/golden_case.h"
#include "model/config/model_config.h"
#include "model/config/rope_keys.h"
#include "model/json/json.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

// A power that is not rounded correctly (torch's may be 1 ulp off) and its reciprocal.
constexpr double kTwoUlps = 2 * 0x1p-23;

class GoldenRope : public testing::TestWithParam<std::string> {};

TEST_P(GoldenRope, FrequenciesMatchToTheLastBits) {
  const GoldenCase golden = load_golden_case(GetParam());
  const ModelConfig config = load_model_config(golden.folder);
  ASSERT_EQ(config.ropes.empty(), golden.inv_freq.empty());
  if (config.ropes.empty()) return;
  const RopeSpec& rope = config.ropes.front();
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
  refuse(unsupported, R"({"rope_scaling":{"type":"axial","factor":2}})", "\"axial\"");
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
  const RopeSpec plain = make_rope({.rotary_dim = 64}, RopeStyle::kNeox);
  const RopeSpec linear =
      make_rope({.kind = RopeKind::kLinear, .factor = 4.0, .rotary_dim = 64}, RopeStyle::kNeox);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(linear.inv_freq[i], plain.inv_freq[i] / 4);
  const RopeSpec dynamic = make_rope({.kind = RopeKind::kDynamic,
                                      .theta = 5000.0,
                                      .factor = 3.0,
                                      .rotary_dim = 64,
                                      .original_length = 128},
                                     RopeStyle::kInterleaved);
  EXPECT_EQ(dynamic.dynamic_original_max, 128);
  EXPECT_EQ(dynamic.dynamic_base, 5000.0);
  EXPECT_EQ(dynamic.dynamic_factor, 3.0);
  EXPECT_EQ(dynamic.style, RopeStyle::kInterleaved);
}

TEST(RopeScaling, YarnAttentionFactor) {
  RopeScaling s{.kind = RopeKind::kYarn, .factor = 8.0, .rotary_dim = 64, .original_length = 64};
  const auto factor = [&s] { return make_rope(s, RopeStyle::kNeox).attention_factor; };
  EXPECT_FLOAT_EQ(factor(), static_cast<float>(0.1 * std::log(8.0) + 1.0));
  s.mscale = 2.0;  // alone: ignored
  EXPECT_FLOAT_EQ(factor(), static_cast<float>(0.1 * std::log(8.0) + 1.0));
  s.mscale_all_dim = 2.0;
  EXPECT_FLOAT_EQ(factor(), 1.0f);
  s.attention_factor = 0.75;
  EXPECT_FLOAT_EQ(factor(), 0.75f);
  s = {.kind = RopeKind::kYarn, .factor = 0.5, .rotary_dim = 64, .original_length = 64};
  EXPECT_FLOAT_EQ(factor(), 1.0f);
}

TEST(RopeScaling, LongRopeHasTwoSetsOfFrequencies) {
  RopeScaling s{.kind = RopeKind::kLongRope,
                .factor = 4.0,
                .rotary_dim = 4,
                .original_length = 64,
                .short_factors = {1.0f, 2.0f},
                .long_factors = {4.0f, 8.0f}};
  const RopeSpec rope = make_rope(s, RopeStyle::kNeox);
  EXPECT_EQ(rope.inv_freq, (std::vector<float>{1.0f, 0.005f}));
  EXPECT_EQ(rope.long_inv_freq, (std::vector<float>{0.25f, 0.00125f}));
  EXPECT_EQ(rope.dynamic_original_max, 64);
  EXPECT_FLOAT_EQ(rope.attention_factor,
                  static_cast<float>(std::sqrt(1.0 + std::log(4.0) / std::log(64.0))));
  s.factor = 1.0;
  EXPECT_EQ(make_rope(s, RopeStyle::kNeox).attention_factor, 1.0f);
}

TEST(RopeScaling, AFixedAlphaStretchesTheBase) {
  const RopeSpec rope =
      make_rope({.kind = RopeKind::kNtkAlpha, .theta = 100.0, .factor = 1000.0, .rotary_dim = 16},
                RopeStyle::kNeox);
  const RopeSpec wide = make_rope(
      {.theta = 100.0 * std::pow(1000.0, 16.0 / 14.0), .rotary_dim = 16}, RopeStyle::kNeox);
  EXPECT_EQ(rope.inv_freq, wide.inv_freq);
  EXPECT_EQ(rope.dynamic_original_max, 0);
}

RopeScaling read_of(const std::string& text, RopeDefaults defaults) {
  const JsonValue json = parse_json_object(text, "config.json", JsonLimits{});
  ConfigReader reader(json, "config.json");
  defaults.max_position_embeddings = 4096;
  return read_rope_scaling(reader, defaults);
}

TEST(RopeScalingKeys, PartOfAHead) {
  const RopeDefaults half{.head_dim = 64, .rules = {.partial_rotary = 0.5}};
  EXPECT_EQ(read_of("{}", half).rotary_dim, 32);
  EXPECT_EQ(read_of(R"({"partial_rotary_factor":0.75})", half).rotary_dim, 48);
  EXPECT_EQ(read_of(R"({"partial_rotary_factor":0.75,
                        "rope_parameters":{"partial_rotary_factor":1.0}})",
                    half)
                .rotary_dim,
            64);
  EXPECT_EQ(read_of("{}", {.head_dim = 64}).rotary_dim, 64);
  for (const char* odd : {"0.05", "0.0", "0.7"}) {
    const std::string text = str_cat(R"({"partial_rotary_factor":)", odd, "}");
    expect_error(ErrorCode::kCorruptFile, {"partial_rotary_factor"},
                 [&] { read_of(text, {.head_dim = 48, .rules = {.partial_rotary = 1.0}}); });
  }
}

TEST(RopeScalingKeys, LongRopeOfPhi) {
  const RopeDefaults phi{.head_dim = 4,
                         .rules = {.partial_rotary = 1.0, .longrope_original = 1024}};
  const std::string factors = R"("short_factor":[1,1.5],"long_factor":[2,4]})";
  for (const char* name : {"longrope", "su", "yarn"}) {
    const RopeScaling s =
        read_of(str_cat(R"({"rope_scaling":{"type":")", name, R"(",)", factors, "}"), phi);
    EXPECT_EQ(s.kind, RopeKind::kLongRope);
    EXPECT_EQ(s.original_length, 1024);
    EXPECT_EQ(s.factor, 4.0);
    EXPECT_EQ(s.long_factors, (std::vector<float>{2.0f, 4.0f}));
  }
  for (const char* wrong :
       {R"("short_factor":[1],"long_factor":[2,4]})",
        R"("short_factor":[1,0],"long_factor":[2,4]})", R"("short_factor":[1,1]})"}) {
    const std::string text = str_cat(R"({"rope_scaling":{"type":"longrope",)", wrong, "}");
    expect_error(ErrorCode::kCorruptFile, {"_factor"}, [&] { read_of(text, phi); });
  }
  expect_error(ErrorCode::kUnsupported, {"linear"},
               [&] { read_of(R"({"rope_scaling":{"type":"linear","factor":2}})", phi); });
}

TEST(RopeScalingKeys, OfTwoKindsOfLayers) {
  const auto read_both = [](const std::string& text) {
    const JsonValue json = parse_json_object(text, "config.json", JsonLimits{});
    ConfigReader reader(json, "config.json");
    const RopeDefaults defaults{.theta = 1e6, .max_position_embeddings = 4096, .head_dim = 64};
    return read_ropes_by_type(reader, defaults, {1e4, "rope_local_base_freq"});
  };
  EXPECT_EQ(read_both("{}").full.theta, 1e6);
  EXPECT_EQ(read_both("{}").sliding.theta, 1e4);
  const RopesByType old = read_both(R"({"rope_theta":5e5,"rope_local_base_freq":2e4,
                                        "rope_scaling":{"rope_type":"linear","factor":8}})");
  EXPECT_EQ(old.full.kind, RopeKind::kLinear);
  EXPECT_EQ(old.full.theta, 5e5);
  EXPECT_EQ(old.sliding.kind, RopeKind::kDefault);
  EXPECT_EQ(old.sliding.theta, 2e4);
  const RopesByType typed = read_both(R"({"rope_parameters":{
      "full_attention":{"rope_type":"linear","factor":4,"rope_theta":7e5},
      "sliding_attention":{"rope_theta":3e4}}})");
  EXPECT_EQ(typed.full.factor, 4.0);
  EXPECT_EQ(typed.full.theta, 7e5);
  EXPECT_EQ(typed.sliding.theta, 3e4);
  expect_error(ErrorCode::kUnsupported, {"rope_parameters", "factor"},
               [&] { read_both(R"({"rope_parameters":{"rope_type":"linear","factor":4}})"); });
}

}  // namespace
}  // namespace headrace
