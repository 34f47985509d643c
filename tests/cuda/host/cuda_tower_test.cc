// Vision towers on the CUDA backend against transformers: tests/golden/README.md derives what may
// differ.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/reference/reference_backend.h"
#include "cpp/model/vision/tower_harness.h"
#include "cpp/model/vision/vision_golden.h"
#include "cuda/host/support/gpu_under_test.h"

namespace headrace {
namespace {

class CudaTower : public testing::TestWithParam<std::string> {};

struct Error {
  double largest = 0.0, root_mean_square = 0.0;
};

Error error_of(const VisionGolden& golden, DType storage) {
  TowerHarness harness(make_gpu_under_test(storage), golden.folder, storage);
  Error out;
  double squares = 0.0, count = 0.0;
  for (const VisionGolden::Item& item : golden.items) {
    const std::vector<float> rows = harness.encode(item.patches, item.grid);
    for (size_t i = 0; i < rows.size(); ++i) {
      const double error = std::abs(double{rows[i]} - double{item.rows[i]});
      out.largest = std::max(out.largest, error);
      squares += error * error;
    }
    count += static_cast<double>(rows.size());
  }
  out.root_mean_square = std::sqrt(squares / count);
  return out;
}

TEST_P(CudaTower, Float32Rows) {
  const VisionGolden golden = load_vision_golden(GetParam());
  EXPECT_LE(error_of(golden, DType::kF32).largest, golden.row_tolerance);
}

// Activations are bfloat16 here as there, rounded in other places: errors of one size, but
// independent. The largest of some thousand is luck, and may be 1.5 times transformers'. The errors
// of a row share their causes, and some cases have no more than 40 rows: the ratio of two root mean
// squares of as many scatters by 1 / sqrt(40) = 0.16; twice that is allowed.
constexpr double kLuckOfLargest = 1.5, kLuckOfRows = 1.32;

TEST_P(CudaTower, Bfloat16NoWorseThanTransformers) {
  const VisionGolden golden = load_vision_golden(GetParam());
  const Error error = error_of(golden, DType::kBF16);
  EXPECT_LE(error.largest, kLuckOfLargest * golden.bfloat16_max);
  EXPECT_LE(error.root_mean_square, kLuckOfRows * golden.bfloat16_rms);
}

// Three more bits than bfloat16: an eighth of its error.
TEST_P(CudaTower, Float16IsAnEighthOfBfloat16) {
  const VisionGolden golden = load_vision_golden(GetParam());
  const Error error = error_of(golden, DType::kF16);
  EXPECT_LE(error.largest, kLuckOfLargest / 8 * golden.bfloat16_max);
  EXPECT_LE(error.root_mean_square, kLuckOfRows / 8 * golden.bfloat16_rms);
}

// Linears in int8, activations as they come: the rows of the reference from the same weights.
TEST_P(CudaTower, Int8RowsAreTheReferences) {
  const VisionGolden golden = load_vision_golden(GetParam());
  Quantization quantization = parse_quantization("wint8", 0);
  quantization.activations = Activations::kWhole;
  TowerHarness gpu(make_gpu_under_test(DType::kF32), golden.folder, DType::kF32, quantization);
  TowerHarness reference(make_reference_backend(0, Activations::kWhole), golden.folder, DType::kF32,
                         quantization);
  TowerHarness plain(make_gpu_under_test(DType::kF32), golden.folder, DType::kF32);
  EXPECT_LT(gpu.tower().weight_bytes(), plain.tower().weight_bytes());
  const VisionGolden::Item& item = golden.items.front();
  const std::vector<float> rows = gpu.encode(item.patches, item.grid);
  const std::vector<float> expected = reference.encode(item.patches, item.grid);
  ASSERT_EQ(rows.size(), expected.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_NEAR(rows[i], expected[i], golden.row_tolerance) << i;
  }
}

// What comes of a grid over time doesn't depend on others.
TEST_P(CudaTower, SameBitsBesideOtherGrids) {
  const VisionGolden golden = load_vision_golden(GetParam());
  TowerHarness harness(make_gpu_under_test(DType::kBF16), golden.folder, DType::kBF16);
  const int32_t group = harness.tower().group();
  const VisionGolden::Item& item =
      *std::ranges::find_if(golden.items, [&](const auto& one) { return one.grid.t % group == 0; });
  std::vector<float> patches;
  for (const float sign : {-1.0f, 1.0f}) {
    for (const float value : item.patches) patches.push_back(sign * value);
  }
  const std::vector<float> both =
      harness.encode(patches, {2 * item.grid.t, item.grid.h, item.grid.w});
  const std::vector<float> alone = harness.encode(item.patches, item.grid);
  const auto outputs = static_cast<size_t>(harness.tower().outputs());
  const size_t numbers = alone.size() / outputs;
  for (size_t i = 0; i < outputs; ++i) {
    EXPECT_TRUE(std::equal(alone.data() + i * numbers, alone.data() + (i + 1) * numbers,
                           both.data() + (2 * i + 1) * numbers))
        << "output " << i;
  }
}

// All of them: tests/gpu/run.sh has them run on a GPU.
INSTANTIATE_TEST_SUITE_P(Cases, CudaTower, testing::ValuesIn(vision_golden_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace headrace
