// Towers whose linears were rounded to int8 at load.

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "backend/cpu/cpu_backend.h"
#include "cpp/model/decoder_harness.h"
#include "cpp/model/vision/tower_harness.h"
#include "cpp/model/vision/vision_golden.h"
#include "model/load/list_sources.h"
#include "model/load/load_config.h"
#include "model/sources/model_sources.h"

namespace headrace {
namespace {

struct Run {
  std::string isa, name;
};

std::vector<Run> runs() {
  std::vector<Run> out;
  for (const std::string& name : vision_golden_names()) {
    for (const std::string& isa : isas_under_test()) out.push_back({isa, name});
  }
  return out;
}

/// Rows of all items, one behind the other.
std::vector<float> all_rows(TowerHarness& harness, const VisionGolden& golden) {
  std::vector<float> out;
  for (const VisionGolden::Item& item : golden.items) {
    const std::vector<float> rows = harness.encode(item.patches, item.grid);
    out.insert(out.end(), rows.begin(), rows.end());
  }
  return out;
}

std::vector<float> float32_rows(const VisionGolden& golden) {
  std::vector<float> out;
  for (const VisionGolden::Item& item : golden.items) {
    out.insert(out.end(), item.rows.begin(), item.rows.end());
  }
  return out;
}

/// Root mean square of the differences.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double squares = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    squares += (double{a[i]} - double{b[i]}) * (double{a[i]} - double{b[i]});
  }
  return std::sqrt(squares / static_cast<double>(a.size()));
}

/// The reference's rows of a case, made once for all ISAs.
const std::vector<float>& reference_rows(const VisionGolden& golden, const std::string& name) {
  static std::map<std::string, std::vector<float>> made;
  std::vector<float>& out = made[name];
  if (out.empty()) {
    TowerHarness harness("reference", golden.folder, DType::kF32, 2, {8, 64});
    out = all_rows(harness, golden);
  }
  return out;
}

class Int8Tower : public testing::TestWithParam<Run> {};

// Rounding to 127 steps of the largest of 64 numbers, which is about 2.7 times their root mean
// square, is off by 2.7 / 127 / sqrt(12) = 0.6 % of it, rounding to bf16 by 0.17 % of a number:
// 3.6 times as much for each number. transformers' bf16 rounds more of them (not only what meets a
// linear's weights): 4 times its error is a bound with room. It is 2.4 to 3 times.
TEST_P(Int8Tower, AsFarFromFloat32AsRoundingTakesIt) {
  const VisionGolden golden = load_vision_golden(GetParam().name);
  for (const DType storage : {DType::kF32, DType::kBF16}) {
    TowerHarness harness(GetParam().isa, golden.folder, storage, 2, {8, 64});
    const double error = distance(all_rows(harness, golden), float32_rows(golden));
    EXPECT_LE(error, 4.0 * golden.bfloat16_rms);
    EXPECT_GT(error, golden.bfloat16_rms);  // it is rounded
  }
}

// Sums differ in float32's last bits, which moves an activation on the edge between two steps by a
// whole one. Few are: what comes of it is less than half of the rounding's own error.
TEST_P(Int8Tower, AsTheReference) {
  const VisionGolden golden = load_vision_golden(GetParam().name);
  TowerHarness harness(GetParam().isa, golden.folder, DType::kF32, 2, {8, 64});
  const std::vector<float>& want = reference_rows(golden, GetParam().name);
  const double rounding = distance(want, float32_rows(golden));
  EXPECT_LE(distance(all_rows(harness, golden), want), 0.5 * rounding);
}

class Int8TowerSources : public testing::TestWithParam<std::string> {};

TEST_P(Int8TowerSources, AllLinearsButThePatches) {
  const VisionGolden golden = load_vision_golden(GetParam());
  const ModelConfig config = load_model_config(golden.folder);
  for (const auto& [name, group, own] :
       {std::tuple{"wint8", 0, 64}, {"wint8", 128, 128}, {"wint4", 0, 64}, {"wint4", 128, 64}}) {
    const ModelSources sources =
        list_sources(config, likely_naming(config), parse_quantization(name, group));
    EXPECT_EQ(sources.vision->patches.matrix.quant, QuantFormat{});
    size_t count = 0;
    for (const MatrixSource* matrix : sources.vision->matrices()) {
      if (matrix == &sources.vision->patches.matrix) continue;
      ++count;
      EXPECT_EQ(matrix->quant, (QuantFormat{.bits = 8, .group_size = own})) << matrix->name;
    }
    EXPECT_GE(count, 5 * sources.vision->blocks.size() + 1);
  }
}

TEST_P(Int8TowerSources, TakesThePlannedMemory) {
  const VisionGolden golden = load_vision_golden(GetParam());
  const std::string isa = available_cpu_isas().front();
  const auto weight_bytes = [&](const Quantization& quantization) {
    return TowerHarness(isa, golden.folder, DType::kBF16, 1, quantization).tower().weight_bytes();
  };
  TowerHarness harness(isa, golden.folder, DType::kBF16, 1, {8, 64});
  const ModelConfig& config = harness.config();
  const ModelSources sources = list_sources(config, likely_naming(config), {8, 64});
  size_t want = 0;
  for (const MatrixSource* matrix : sources.vision->matrices()) {
    want += harness.backend().packed_bytes(matrix->weight_shape(DType::kBF16));
  }
  for (const VectorSource* vector : sources.vision->vectors()) {
    want += static_cast<size_t>(vector->n()) * sizeof(float);
  }
  EXPECT_EQ(harness.tower().weight_bytes(), want);
  EXPECT_LT(weight_bytes({8, 64}), weight_bytes({}));
}

INSTANTIATE_TEST_SUITE_P(Runs, Int8Tower, testing::ValuesIn(runs()),
                         [](const auto& test) { return test.param.isa + "_" + test.param.name; });
INSTANTIATE_TEST_SUITE_P(Cases, Int8TowerSources, testing::ValuesIn(vision_golden_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace headrace
