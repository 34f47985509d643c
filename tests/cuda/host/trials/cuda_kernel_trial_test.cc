// What a GPU must show before it is trusted with a request, with faults that are planted.

#include "cuda/host/trials/kernel_trials.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "cuda/host/support/emulated_gpu.h"
#include "submit.h"

namespace headrace::cuda {
namespace {

class KernelTrial : public ::testing::Test {
 protected:
  std::string reason(TrialOp<LinearArgs> op) { return try_wgmma_linears(context_, op); }

  FakeCudaApi api_;
  CudaContext context_{api_, 0};
};

TEST_F(KernelTrial, GoodKernelsPassAndLeaveNothing) {
  EXPECT_EQ(reason(linear), "");
  EXPECT_EQ(try_linears(context_, linear), "");
  EXPECT_EQ(try_wgmma_codes(context_, quant_linear), "");
  EXPECT_EQ(try_attention(context_, attention, true), "");
  EXPECT_EQ(try_attention(context_, attention, false), "");
  EXPECT_EQ(try_code_attention(context_, attention), "");
  EXPECT_EQ(try_quant_linears(context_, quant_linear), "");
  EXPECT_EQ(try_wgmma_quant_linears(context_, quant_linear), "");
  EXPECT_EQ(try_rounded_linears(context_, quant_linear), "");
  EXPECT_EQ(try_experts(context_, grouped_linear), "");
  EXPECT_EQ(try_rounded_experts(context_, grouped_linear), "");
  EXPECT_EQ(try_norms(context_, rms_norm), "");
  EXPECT_EQ(try_rounding_norms(context_, rms_norm), "");
  EXPECT_EQ(try_half_writes(context_, rope_kv_write), "");
  EXPECT_EQ(try_code_writes(context_, rope_kv_write), "");
  EXPECT_EQ(try_copies(context_, {}), "");
  EXPECT_EQ(try_sampling(context_, sample), "");
  EXPECT_GT(api_.calls("launch"), 0);
  EXPECT_LE(api_.calls("kernel"), 600);  // they are a part of a card's first load
  EXPECT_EQ(api_.device_bytes(), 0u);
}

/// Of `rows` rows the fast path reads the features one element off.
template <int64_t kBadRows>
void off_by_one(const LinearArgs& args, Stream stream) {
  LinearArgs bad = args;
  if (args.has_wgmma && args.x.rows == kBadRows) {
    bad.x.data = static_cast<const char*>(args.x.data) + 16;
    --bad.x.rows;
    --bad.out.rows;
  }
  linear(bad, stream);
}

TEST_F(KernelTrial, WrongBitsNameTheRows) {
  EXPECT_EQ(reason(off_by_one<64>), "of 64 rows in bfloat16 they differ");
  EXPECT_EQ(reason(off_by_one<257>), "of 257 rows in bfloat16 they differ");
  EXPECT_EQ(reason(off_by_one<130>), "of 130 rows in bfloat16 they differ");  // by each tile
}

void wrong_with_silu(const LinearArgs& args, Stream stream) {
  LinearArgs bad = args;
  if (args.has_wgmma && args.dtype == DType::kF16) bad.gate_mul = bad.layout.gate_up = false;
  if (bad.gate_mul != args.gate_mul) bad.layout.n /= 2;
  linear(bad, stream);
}

TEST_F(KernelTrial, EveryEpilogueAndTypeIsTried) {
  EXPECT_EQ(reason(wrong_with_silu), "of 1 rows in float16 with SiLU they differ");
}

/// Of so many rows (0: any) by mma.sync, one of the arguments is changed.
template <int64_t kBadRows, void (*kChange)(LinearArgs&)>
void changed(const LinearArgs& args, Stream stream) {
  LinearArgs bad = args;
  if (kBadRows == 0 || args.x.rows == kBadRows) kChange(bad);
  linear(bad, stream);
}
void other_numbers(LinearArgs& args) { args.x.data = static_cast<const char*>(args.x.data) + 16; }
void no_bias(LinearArgs& args) { args.bias = nullptr; }
void no_residual(LinearArgs& args) { args.residual = {}; }
void up_of_gate(LinearArgs& args) {  // 8 features on, all gates are ups and ups gates
  if (!args.gate_mul) return;
  args.weight = static_cast<const char*>(args.weight) + 2 * kGateUpGroup * args.layout.stride();
  args.layout.n -= 64;
  args.out.cols -= 32;
}

TEST_F(KernelTrial, WrongLinearsByMmaAreSeen) {
  EXPECT_EQ(try_linears(context_, changed<9, other_numbers>),
            "of 9 rows they differ in bfloat16 with a bias");
  EXPECT_EQ(try_linears(context_, changed<40, other_numbers>),
            "of 40 rows they differ in bfloat16 with a bias");
  EXPECT_EQ(try_linears(context_, changed<0, other_numbers>),
            "values are wrong in bfloat16 with a bias");
  EXPECT_EQ(try_linears(context_, changed<0, no_bias>), "values are wrong in bfloat16 with a bias");
  EXPECT_EQ(try_linears(context_, changed<0, up_of_gate>),
            "values are wrong in bfloat16 with SiLU");
  EXPECT_EQ(try_linears(context_, changed<0, no_residual>),
            "values are wrong in bfloat16 with a residual");
}

/// By wgmma, of `kBadRows` rows or any (0), features are 16 off.
template <Activations kBad, int64_t kBadRows>
void other_feature(const QuantLinearArgs& args, Stream stream) {
  QuantLinearArgs bad = args;
  const LinearArgs& linear = args.linear;
  if (linear.has_wgmma && args.format.activations == kBad &&
      (kBadRows == 0 || linear.x.rows == kBadRows)) {
    const QuantLayout layout{linear.layout, args.format};
    bad.linear.weight = static_cast<const char*>(linear.weight) + layout.tile_bytes();
    bad.linear.layout.n -= kQuantTile;
    bad.linear.out.cols -= kQuantTile;
  }
  quant_linear(bad, stream);
}

TEST_F(KernelTrial, WrongCodesAreSeen) {
  EXPECT_EQ(try_wgmma_codes(context_, other_feature<Activations::kFloat8Rows, 64>),
            "of 64 rows they differ");
  EXPECT_EQ(try_wgmma_codes(context_, other_feature<Activations::kFloat8Groups, 20>),
            "of 20 rows they differ in groups");
  EXPECT_EQ(try_wgmma_codes(context_, other_feature<Activations::kFloat8Groups, 0>),
            "values are wrong in groups");
}

/// FP8 by wgmma, or by mma.sync: the last that a chain does which doesn't end with its unit.
template <bool kWgmma>
void cut_at_the_end(const QuantLinearArgs& args, Stream stream) {
  quant_linear(args, stream);
  if (!has_float8(args.format) || args.linear.has_wgmma != kWgmma) return;
  const Matrix out = args.linear.out;
  submit(stream, nullptr, [out] {
    auto* const bits = static_cast<uint32_t*>(out.data);
    for (int64_t i = 0; i < out.rows * out.stride; ++i) bits[i] &= ~0x3ffu;
  });
}

TEST_F(KernelTrial, SumsThatLoseBitsBehindAUnitAreSeen) {
  EXPECT_EQ(try_wgmma_codes(context_, cut_at_the_end<true>), "values are wrong");
  EXPECT_EQ(try_rounded_linears(context_, cut_at_the_end<false>),
            "values are wrong with FP8 weights and rows");
}

/// Tensor cores see scores that are twice as large.
void another_scale(const AttentionArgs& args, Stream stream) {
  AttentionArgs bad = args;
  if (!args.plain) bad.scale *= 2.0f;
  attention(bad, stream);
}

/// Short pieces see scores that are a little larger.
template <DType kBad>
void other_decodes(const AttentionArgs& args, Stream stream) {
  attention(args, stream);
  if (args.plain || args.dtype != kBad) return;
  AttentionArgs bad = args;
  bad.scale *= 1.01f;
  bad.long_items.expected = 0;
  attention(bad, stream);
}

TEST_F(KernelTrial, WrongAttentionIsSeen) {
  EXPECT_EQ(try_attention(context_, another_scale, true),
            "values are wrong in bfloat16, heads of 64");
  EXPECT_EQ(try_attention(context_, another_scale, false),
            "values are wrong in bfloat16, heads of 64");
  EXPECT_EQ(try_attention(context_, other_decodes<DType::kBF16>, true),
            "a decode and a prompt differ in bfloat16, heads of 64");
  EXPECT_EQ(try_attention(context_, other_decodes<DType::kF16>, false),
            "a decode and a prompt differ in float16, heads of 128");
}

// Any model's heads: those that kernels of their own serve, and others' blocks.
TEST_F(KernelTrial, AttentionIsTriedWithAModelsHeads) {
  for (const AttentionHeads& heads : {AttentionHeads{DType::kBF16, DType::kBF16, 80, 64},
                                      {DType::kF16, DType::kF16, 64, 32},
                                      {DType::kF16, DType::kI8, 96, 8},
                                      {DType::kBF16, DType::kBF16, 256, 16},
                                      {DType::kBF16, DType::kBF16, 48, 16, true}}) {
    EXPECT_EQ(try_heads(context_, attention, true, heads), "") << heads.head_dim;
  }
  EXPECT_EQ(try_heads(context_, another_scale, true, {DType::kBF16, DType::kBF16, 96, 64}),
            "values are wrong in bfloat16, heads of 96");
  EXPECT_EQ(
      try_heads(context_, other_decodes<DType::kF16>, true, {DType::kF16, DType::kF16, 64, 16}),
      "a decode and a prompt differ in float16, heads of 64");
  EXPECT_EQ(try_heads(context_, another_scale, true, {DType::kF16, DType::kF16, 48, 16, true}),
            "values are wrong in float16, latent rows of 48");
}

void another_plain_scale(const AttentionArgs& args, Stream stream) {
  AttentionArgs bad = args;
  if (args.plain) bad.scale *= 1.1f;
  attention(bad, stream);
}

TEST_F(KernelTrial, HeadsThatHavePlainKernelsAlone) {
  EXPECT_EQ(try_plain_heads(context_, attention, {DType::kBF16, DType::kBF16, 32, 16}), "");
  EXPECT_EQ(try_plain_heads(context_, attention, {DType::kF16, DType::kF16, 112, 64}), "");
  EXPECT_EQ(try_plain_heads(context_, another_plain_scale, {DType::kF16, DType::kF16, 48, 64}),
            "values are wrong in float16, heads of 48");
}

/// Values' scales are the keys'.
void other_scales(const AttentionArgs& args, Stream stream) {
  AttentionArgs bad = args;
  if (!args.plain) bad.value_scales = args.key_scales;
  attention(bad, stream);
}

TEST_F(KernelTrial, WrongAttentionOverCodesIsSeen) {
  EXPECT_EQ(try_code_attention(context_, other_scales), "values are wrong in int8, heads of 128");
  EXPECT_EQ(try_code_attention(context_, other_decodes<DType::kF16>),
            "a decode and a prompt differ in fp8, heads of 64");
}

/// Ids are 16 off.
void shifted(const SampleArgs& args, Stream stream) {
  SampleArgs bad = args;
  bad.logits += 16;
  bad.vocab_size -= 16;
  sample(bad, stream);
}

/// All rows but the first are left out.
void no_draws(const SampleArgs& args, Stream stream) {
  SampleArgs bad = args;
  bad.num_rows = 1;
  sample(bad, stream);
}

TEST_F(KernelTrial, WrongSamplingIsSeen) {
  EXPECT_EQ(try_sampling(context_, shifted), "tokens of greedy are others");
  EXPECT_EQ(try_sampling(context_, no_draws), "tokens of temperature are others");
}

/// All but the first time, as if a record were spoiled.
void spoiled_in_records(const SampleArgs& args, Stream stream) {
  static int calls = 0;
  SampleArgs bad = args;
  if (calls++ > 0) bad.logits += 16;
  sample(bad, stream);
}

TEST_F(KernelTrial, SamplingIsTriedFromAGraph) {
  EXPECT_EQ(try_sampling(context_, spoiled_in_records), "tokens of greedy are others, recorded");
}

/// Rows are read 8 elements off, of kRows rows (0: all) with codes of a kind.
template <int64_t kRows, Activations kKind>
void off_by_eight(const QuantLinearArgs& args, Stream stream) {
  QuantLinearArgs bad = args;
  const bool hit = (kRows == 0 || args.linear.x.rows == kRows) && args.format.activations == kKind;
  if (hit) bad.linear.x.data = static_cast<const char*>(args.linear.x.data) + 16;
  quant_linear(bad, stream);
}

/// The same of kRows rows by wgmma alone.
template <int64_t kRows>
void off_by_wgmma(const QuantLinearArgs& args, Stream stream) {
  QuantLinearArgs bad = args;
  const bool hit = args.linear.x.rows == kRows && args.linear.has_wgmma;
  if (hit) bad.linear.x.data = static_cast<const char*>(args.linear.x.data) + 16;
  quant_linear(bad, stream);
}

/// Of int8 and 16-bit floats alone.
void wrong_int8(const QuantLinearArgs& args, Stream stream) {
  QuantLinearArgs bad = args;
  if (args.format.bits == 8) bad.linear.out.data = static_cast<char*>(args.linear.out.data) + 4;
  quant_linear(bad, stream);
}

TEST_F(KernelTrial, WrongCodeLinearsAreSeen) {
  EXPECT_EQ(try_quant_linears(context_, off_by_eight<9, Activations::kWhole>),
            "of 9 rows they differ with int4 weights with zero points");
  EXPECT_EQ(try_quant_linears(context_, off_by_eight<0, Activations::kWhole>),
            "values are wrong with int4 weights with zero points");
  EXPECT_EQ(try_quant_linears(context_, wrong_int8), "values are wrong with int8 weights");
  EXPECT_EQ(try_wgmma_quant_linears(context_, off_by_wgmma<20>),
            "of 20 rows they differ with int4 weights with zero points");
  EXPECT_EQ(try_wgmma_quant_linears(context_, off_by_wgmma<70>),
            "of 70 rows they differ with int4 weights with zero points");
  EXPECT_EQ(try_rounded_linears(context_, off_by_eight<32, Activations::kInt8Rows>),
            "of 32 rows they differ with int8 weights and rows");
  EXPECT_EQ(try_rounded_linears(context_, off_by_eight<0, Activations::kFloat8Rows>),
            "values are wrong with FP8 weights and rows");
  EXPECT_EQ(try_rounded_linears(context_, off_by_eight<0, Activations::kFloat8Groups>),
            "values are wrong with FP8 weights and rows in groups");
}

/// Of such codes, rows that lie in order are taken.
template <Activations kBad>
void other_rows_of(const GroupedLinearArgs& args, Stream stream) {
  GroupedLinearArgs bad = args;
  if (args.quant.activations == kBad && args.tile_rows == 16) bad.pair_rows = nullptr;
  grouped_linear(bad, stream);
}

TEST_F(KernelTrial, WrongExpertsOfRoundedRowsAreSeen) {
  EXPECT_EQ(try_rounded_experts(context_, other_rows_of<Activations::kInt8Rows>),
            "in tiles of 16 rows they differ in int8 with int8 rows");
  EXPECT_EQ(try_rounded_experts(context_, other_rows_of<Activations::kFloat8Rows>),
            "in tiles of 16 rows they differ in FP8");
  EXPECT_EQ(try_rounded_experts(context_, other_rows_of<Activations::kFloat8Groups>),
            "in tiles of 16 rows they differ in FP8 in groups");
}

/// In tiles of so many rows, of weights of so many bits (0: 16-bit floats), rows are in order.
template <int32_t kTileRows, int32_t kBits>
void other_rows(const GroupedLinearArgs& args, Stream stream) {
  GroupedLinearArgs bad = args;
  if (args.tile_rows == kTileRows && args.quant.bits == kBits) bad.pair_rows = nullptr;
  grouped_linear(bad, stream);
}

TEST_F(KernelTrial, WrongExpertsAreSeen) {
  EXPECT_EQ(try_experts(context_, other_rows<16, 0>),
            "in tiles of 16 rows they differ in bfloat16");
  EXPECT_EQ(try_experts(context_, other_rows<128, 0>),
            "in tiles of 128 rows they differ in bfloat16");
  EXPECT_EQ(try_experts(context_, other_rows<64, 4>), "in tiles of 64 rows they differ in int4");
  EXPECT_EQ(try_experts(context_, other_rows<8, 8>), "in tiles of 8 rows they differ in int8");
}

template <DType kBad, bool kAdds>
void other_weights(const RmsNormArgs& args, Stream stream) {
  RmsNormArgs bad = args;
  const bool adds = args.delta.data != nullptr;
  if (args.dtype == kBad && adds == kAdds) bad.weight = static_cast<const char*>(args.weight) - 2;
  rms_norm(bad, stream);
}

TEST_F(KernelTrial, WrongNormsAreSeen) {
  EXPECT_EQ(try_norms(context_, other_weights<DType::kBF16, true>), "norms are wrong in bfloat16");
  EXPECT_EQ(try_norms(context_, other_weights<DType::kF16, false>), "norms are wrong in float16");
}

/// Codes are rounded as another format says.
template <Activations kBad, Activations kTaken>
void other_codes(const RmsNormArgs& args, Stream stream) {
  RmsNormArgs bad = args;
  if (args.rounded.layout.format.activations == kBad) {
    bad.rounded.layout.format.activations = kTaken;
  }
  rms_norm(bad, stream);
}

TEST_F(KernelTrial, WrongCodesOfNormsAreSeen) {
  constexpr auto kInt8 = Activations::kInt8Rows, kFloat8 = Activations::kFloat8Rows,
                 kGroups = Activations::kFloat8Groups;
  EXPECT_EQ(try_rounding_norms(context_, other_codes<kInt8, kFloat8>), "codes are wrong in int8");
  EXPECT_EQ(try_rounding_norms(context_, other_codes<kFloat8, kInt8>), "codes are wrong in fp8");
  EXPECT_EQ(try_rounding_norms(context_, other_codes<kGroups, kFloat8>),
            "codes are wrong in fp8 by groups");
}

/// Neighbours are pairs where they aren't.
void other_pairs(const RopeKvWriteArgs& args, Stream stream) {
  RopeKvWriteArgs bad = args;
  bad.interleaved = !bad.interleaved;
  rope_kv_write(bad, stream);
}

/// Keys and values change places.
template <DType kBad>
void swapped(const RopeKvWriteArgs& args, Stream stream) {
  RopeKvWriteArgs bad = args;
  if (args.cache_dtype == kBad) std::swap(bad.keys, bad.values);
  rope_kv_write(bad, stream);
}

void no_query_norm(const RopeKvWriteArgs& args, Stream stream) {
  RopeKvWriteArgs bad = args;
  bad.q_norm = nullptr;
  rope_kv_write(bad, stream);
}

TEST_F(KernelTrial, WrongWritesAreSeen) {
  EXPECT_EQ(try_half_writes(context_, other_pairs), "values are wrong in bfloat16");
  EXPECT_EQ(try_half_writes(context_, no_query_norm), "values are wrong in bfloat16");
  EXPECT_EQ(try_half_writes(context_, swapped<DType::kF16>), "values are wrong in float16");
}

TEST_F(KernelTrial, WrongCodeWritesAreSeen) {
  EXPECT_EQ(try_code_writes(context_, other_pairs), "codes are wrong in int8");
  EXPECT_EQ(try_code_writes(context_, swapped<DType::kF8E4M3>), "codes are wrong in fp8");
  EXPECT_EQ(try_code_writes(context_, swapped<DType::kU4>), "codes are wrong in uint4");
}

TEST_F(KernelTrial, ARefusedLaunchIsAReasonAndALostGpuAnError) {
  api_.fail("kernel", 98, 3);
  EXPECT_NE(reason(linear).find("fake error 98"), std::string::npos);
  EXPECT_EQ(reason(linear), "");
  api_.fail("kernel", kFakeLaunchFailure, 3, true);
  EXPECT_THROW(reason(linear), Error);
  EXPECT_EQ(api_.device_bytes(), 0u);
}

}  // namespace
}  // namespace headrace::cuda
