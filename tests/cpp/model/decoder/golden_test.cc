// The decoder against transformers: tests/golden/README.md derives what may differ.

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "cpp/model/decoder_harness.h"
#include "cpp/model/golden_case.h"
#include "cpp/model/golden_expect.h"

namespace headrace {
namespace {

struct Run {
  std::string isa, name;
};

/// Every ISA under test with every case that `wanted` picks.
template <class Wanted>
std::vector<Run> runs(Wanted wanted) {
  std::vector<Run> out;
  for (const std::string& name : golden_case_names()) {
    const GoldenCase golden = load_golden_case(name);
    for (const std::string& isa : isas_under_test()) {
      if (wanted(isa, golden)) out.push_back({isa, name});
    }
  }
  return out;
}

class Golden : public testing::TestWithParam<Run> {
 protected:
  std::string isa() const { return GetParam().isa; }
  GoldenCase golden() const { return load_golden_case(GetParam().name); }
};
class GoldenFloat32 : public Golden {};
class GoldenStoredDtype : public Golden {};
class GoldenBfloat16 : public Golden {};

TEST_P(GoldenFloat32, SameTokensAndLogits) {
  const GoldenCase g = golden();
  DecoderHarness harness(isa(), g.folder, {});
  expect_float32_answers(harness, g);
}

// 16-bit storage keeps weights that the file has in 16 bits exactly: the answers stay.
TEST_P(GoldenStoredDtype, SameTokensAndLogits) {
  const GoldenCase g = golden();
  const DType storage = g.storage == "bfloat16" ? DType::kBF16 : DType::kF16;
  DecoderHarness harness(isa(), g.folder, {.storage = storage});
  expect_float32_answers(harness, g);
}

// avx512_bf16 rounds activations, as transformers does, but in other places. Where that makes a
// router choose another expert, single logits jump, at other tokens than transformers' do: the
// largest error is luck, and may be 1.5 times transformers'. Their root mean square may be no
// larger.
TEST_P(GoldenBfloat16, NoWorseThanTransformers) {
  const GoldenCase g = golden();
  DecoderHarness harness(isa(), g.folder, {.storage = DType::kBF16, .kv_dtype = DType::kBF16});
  expect_bfloat16_answers(harness, g, g.routed && isa() == "avx512_bf16" ? 1.5 : 1.0);
}

std::string name_of(const testing::TestParamInfo<Run>& test) {
  return test.param.isa + "_" + test.param.name;
}

INSTANTIATE_TEST_SUITE_P(
    Runs, GoldenFloat32,
    testing::ValuesIn(runs([](const std::string&, const GoldenCase&) { return true; })), name_of);

INSTANTIATE_TEST_SUITE_P(Runs, GoldenStoredDtype,
                         testing::ValuesIn(runs([](const std::string& isa,
                                                   const GoldenCase& golden) {
                           // avx512_bf16 rounds the activations that meet bf16 weights.
                           return golden.storage == "float16" ||
                                  (golden.storage == "bfloat16" && isa != "avx512_bf16");
                         })),
                         name_of);

INSTANTIATE_TEST_SUITE_P(Runs, GoldenBfloat16,
                         testing::ValuesIn(runs([](const std::string&, const GoldenCase& golden) {
                           return golden.bfloat16.present;
                         })),
                         name_of);

}  // namespace
}  // namespace headrace
