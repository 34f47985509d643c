// Encoders against transformers: tests/golden/README.md derives what may differ. With adapters,
// against merged weights.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "backend/cpu/cpu_backend.h"
#include "cpp/model/decoder_harness.h"
#include "cpp/model/golden_case.h"
#include "cpp/model/lora_files.h"
#include "cpp/model/test_json.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using Rows = std::vector<std::vector<float>>;

const fs::path kFolder = fs::path(HEADRACE_GOLDEN_DIR) / "encoders";

struct Prompt {
  std::vector<int32_t> tokens;
  int32_t second_text_at = 0;
  std::vector<float> rows, head;  ///< [tokens, H]; empty, or [outputs]
};

struct Encoder {
  fs::path folder;
  double rows_tolerance = 0, head_tolerance = 0;
  double half_rms = 0, half_max = 0, half_head = 0;  ///< transformers' own errors in bfloat16
  std::vector<Prompt> prompts;
};

Encoder load_encoder(const std::string& name) {
  Encoder out;
  out.folder = kFolder / name;
  const Json json = Json::parse(read_golden_text(out.folder / "golden.json"));
  auto arrays = read_golden_arrays(out.folder / "golden.safetensors");
  out.rows_tolerance = json.at("tolerance").at("rows");
  out.head_tolerance = json.at("tolerance").at("head");
  out.half_rms = json.at("bfloat16_error").at("rows_rms");
  out.half_max = json.at("bfloat16_error").at("rows_max");
  out.half_head = json.at("bfloat16_error").at("head_max");
  for (size_t i = 0; i < json.at("prompts").size(); ++i) {
    const Json& prompt = json.at("prompts")[i];
    const std::string number = std::to_string(i);
    out.prompts.push_back({prompt.at("prompt").get<std::vector<int32_t>>(),
                           prompt.at("second_text_at"), arrays["rows." + number],
                           arrays["head." + number]});
  }
  return out;
}

Chunk chunk_of(const Prompt& prompt, int32_t sequence) {
  return {.sequence = sequence, .tokens = prompt.tokens, .second_text_at = prompt.second_text_at};
}

struct Errors {
  double largest = 0, squares = 0, count = 0;

  void add(std::span<const float> found, std::span<const float> expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      const double error = std::abs(double{found[i]} - double{expected[i]});
      largest = std::isnan(error) ? HUGE_VAL : std::max(largest, error);
      squares += error * error;
      ++count;
    }
  }
  double rms() const { return std::sqrt(squares / count); }
};

/// What a pooled request asks the model's layers behind pooling for.
std::vector<float> pooled(const ModelConfig& config, const Rows& rows) {
  if (config.pool_head.classifies && !config.pool_head.reads_mean) return rows.front();
  std::vector<double> sums(rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) sums[i] += row[i];
  }
  std::vector<float> out;
  for (const double sum : sums) {
    out.push_back(static_cast<float>(sum / static_cast<double>(rows.size())));
  }
  return out;
}

struct Found {
  Errors rows, head;
};

Found compare(DecoderHarness& harness, const Encoder& encoder) {
  Found out;
  for (const Prompt& prompt : encoder.prompts) {
    harness.start(0, static_cast<int32_t>(prompt.tokens.size()));
    const Rows rows = harness.hidden({chunk_of(prompt, 0)});
    const auto width = prompt.rows.size() / rows.size();
    for (size_t i = 0; i < rows.size(); ++i) {
      out.rows.add(rows[i], std::span(prompt.rows).subspan(i * width, width));
    }
    if (prompt.head.empty()) continue;
    out.head.add(harness.pool_head({pooled(harness.config(), rows)}).at(0), prompt.head);
  }
  return out;
}

struct Run {
  std::string isa, name;
};

class Encoders : public testing::TestWithParam<Run> {};

TEST_P(Encoders, Float32Rows) {
  const Encoder encoder = load_encoder(GetParam().name);
  DecoderHarness harness(GetParam().isa, encoder.folder, {});
  const Found found = compare(harness, encoder);
  EXPECT_LE(found.rows.largest, encoder.rows_tolerance);
  EXPECT_LE(found.head.largest, encoder.head_tolerance);
}

TEST_P(Encoders, Bfloat16NoWorseThanTransformers) {
  const Encoder encoder = load_encoder(GetParam().name);
  DecoderHarness harness(GetParam().isa, encoder.folder,
                         {.storage = DType::kBF16, .kv_dtype = DType::kBF16});
  const Found found = compare(harness, encoder);
  EXPECT_LE(found.rows.rms(), encoder.half_rms);
  EXPECT_LE(found.rows.largest, encoder.half_max);
  EXPECT_LE(found.head.largest, encoder.half_head);
}

// Weights and rows are off by up to 1 / 254 of their largest number: up to half a hundredth of a
// linear's result, in the root mean square. These random models make up to 30 times that of it.
TEST_P(Encoders, Int8WeightsStayNear) {
  const Encoder encoder = load_encoder(GetParam().name);
  DecoderHarness harness(GetParam().isa, encoder.folder,
                         {.quantization = parse_quantization("wint8", 0)});
  const Found found = compare(harness, encoder);
  double squares = 0, count = 0;
  for (const Prompt& prompt : encoder.prompts) {
    for (const float x : prompt.rows) squares += double{x} * x;
    count += static_cast<double>(prompt.rows.size());
  }
  EXPECT_GT(found.rows.rms(), 0);
  EXPECT_LE(found.rows.rms(), 0.2 * std::sqrt(squares / count));
}

TEST_P(Encoders, BitsDependOnTheTextAlone) {
  const Encoder encoder = load_encoder(GetParam().name);
  DecoderHarness alone(GetParam().isa, encoder.folder, {.num_threads = 1});
  DecoderHarness together(GetParam().isa, encoder.folder, {.block_size = 64, .num_threads = 3});
  std::vector<Chunk> chunks;
  Rows expected, poolings;
  for (size_t i = 0; i < encoder.prompts.size(); ++i) {
    const auto sequence = static_cast<int32_t>(i);
    chunks.push_back(chunk_of(encoder.prompts[i], sequence));
    alone.start(sequence, 0);
    const Rows rows = alone.hidden({chunks.back()});
    expected.insert(expected.end(), rows.begin(), rows.end());
    poolings.push_back(pooled(alone.config(), rows));
  }
  EXPECT_EQ(together.hidden(chunks), expected);
  if (alone.config().pool_head.layers.empty()) return;
  Rows heads;
  for (const auto& row : poolings) heads.push_back(alone.pool_head({row}).at(0));
  EXPECT_EQ(together.pool_head(poolings), heads);
}

std::vector<Run> runs() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  std::vector<Run> out;
  for (const std::string& name : names) {
    for (const std::string& isa : isas_under_test()) out.push_back({isa, name});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Runs, Encoders, testing::ValuesIn(runs()),
                         [](const testing::TestParamInfo<Run>& test) {
                           return test.param.isa + "_" + test.param.name;
                         });

struct Adapted {
  const char* name;
  const char* prefix;  ///< of the checkpoint's names
  /// Of two adapters.
  std::vector<std::string> first, second;
};

const std::vector<std::string> kBertFirst = {"attention.self.query", "attention.self.value",
                                             "output.dense"};
const std::vector<std::string> kBertSecond = {"attention.self.key", "attention.output.dense",
                                              "intermediate.dense"};
const std::vector<Adapted> kAdapted = {
    {"bert", "", kBertFirst, kBertSecond},
    {"xlm_roberta_classifier", "roberta.", kBertFirst, kBertSecond},
    {"modernbert", "", {"attn.Wqkv", "mlp.Wo"}, {"attn.Wo", "mlp.Wi"}},
    {"modernbert_classifier", "model.", {"attn.Wqkv", "mlp.Wo"}, {"attn.Wo", "mlp.Wi"}},
};

struct AdaptedRun {
  std::string isa;
  Adapted model;
};

/// A text with the first adapter, the second, and none; another text with the first.
class AdaptedEncoders : public testing::TestWithParam<AdaptedRun> {
 protected:
  static constexpr int32_t kTexts = 4;

  void SetUp() override {
    const Adapted& model = GetParam().model;
    encoder_ = load_encoder(model.name);
    AdapterToWrite first{.modules = model.first, .prefix = model.prefix};
    AdapterToWrite second{.modules = model.second, .rank = 5, .seed = 2, .prefix = model.prefix};
    const ModelConfig config = load_model_config(encoder_.folder);
    write_merged(encoder_.folder, write_adapter(folders_[0], config, first), merged_[0]);
    write_merged(encoder_.folder, write_adapter(folders_[1], config, second), merged_[1]);
  }

  /// The texts' rows, all in a step or one by one.
  std::vector<Rows> adapted(int32_t num_threads, bool together) const {
    DecoderHarness harness(GetParam().isa, encoder_.folder,
                           {.num_threads = num_threads, .max_loras = 2, .max_lora_rank = 8});
    const auto first = harness.load_lora(folders_[0].path());
    const auto second = harness.load_lora(folders_[1].path());
    const LoraAdapter* const none = nullptr;
    std::vector<Chunk> chunks;
    for (const LoraAdapter* lora : {first.get(), second.get(), none, first.get()}) {
      const auto i = static_cast<int32_t>(chunks.size());
      chunks.push_back(chunk_of(text(i), i));
      chunks.back().lora = lora;
      harness.start(i, 0);
    }
    std::vector<Rows> out;
    if (!together) {
      for (const Chunk& chunk : chunks) out.push_back(harness.hidden({chunk}));
      return out;
    }
    const Rows all = harness.hidden(chunks);
    auto row = all.begin();
    for (const Chunk& chunk : chunks) {
      const auto end = row + static_cast<std::ptrdiff_t>(chunk.tokens.size());
      out.emplace_back(row, end);
      row = end;
    }
    return out;
  }

  const Prompt& text(int32_t i) const { return encoder_.prompts[i < 3 ? 0 : 1]; }

  Encoder encoder_;
  TempFolder folders_[2], merged_[2];
};

// Both are float32 evaluations of one function, and the tolerance is doubled for the adapter's
// sums and the roundings of merged weights, as in LoraMerged.
TEST_P(AdaptedEncoders, GiveTheRowsOfMergedWeights) {
  const std::vector<Rows> found = adapted(0, true);
  DecoderHarness plain(GetParam().isa, encoder_.folder, {});
  DecoderHarness first(GetParam().isa, merged_[0].path(), {});
  DecoderHarness second(GetParam().isa, merged_[1].path(), {});
  DecoderHarness* const merged[kTexts] = {&first, &second, &plain, &first};
  const auto rows_of = [&](DecoderHarness& harness, int32_t i) {
    harness.start(0, 0);
    return harness.hidden({chunk_of(text(i), 0)});
  };
  EXPECT_EQ(found[2], rows_of(plain, 2)) << "without adapter";
  for (const int32_t i : {0, 1, 3}) {
    const Rows expected = rows_of(*merged[i], i), base = rows_of(plain, i);
    Errors rows, effect;
    for (size_t row = 0; row < expected.size(); ++row) {
      rows.add(found[size_t(i)][row], expected[row]);
      effect.add(base[row], expected[row]);
    }
    EXPECT_LE(rows.largest, 2.0 * encoder_.rows_tolerance) << "text " << i;
    EXPECT_GT(effect.largest, 40.0 * encoder_.rows_tolerance) << "too weak to show a fault";
  }
}

TEST_P(AdaptedEncoders, BitsDependOnTextAndAdapterAlone) {
  EXPECT_EQ(adapted(3, true), adapted(1, false));
}

std::vector<AdaptedRun> adapted_runs() {
  std::vector<AdaptedRun> out;
  for (const std::string& isa : isas_under_test()) {
    for (const Adapted& model : kAdapted) out.push_back({isa, model});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Runs, AdaptedEncoders, testing::ValuesIn(adapted_runs()),
                         [](const testing::TestParamInfo<AdaptedRun>& test) {
                           return test.param.isa + "_" + test.param.model.name;
                         });

}  // namespace
}  // namespace headrace
