// What a GPU must show before it is trusted with a request, with faults that are planted.

#include "cuda/host/trials/kernel_trials.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "cpp/engine/expect_error.h"
#include "cpp/model/decoder_harness.h"
#include "cpp/model/golden_case.h"
#include "cuda/host/support/emulated_gpu.h"
#include "cuda/host/support/engine_requests.h"
#include "engine/engine_access.h"
#include "engine/load/loaded_model.h"
#include "fakes/fake_model.h"
#include "model/config/quantization.h"

namespace headrace::cuda {
namespace {

using headrace::testing::read_all;

class KernelTrial : public ::testing::Test {
 protected:
  std::string reason(TrialOp<LinearArgs> op) { return try_wgmma_linears(context_, op); }

  FakeCudaApi api_;
  CudaContext context_{api_, 0};
};

TEST_F(KernelTrial, GoodKernelsPassAndLeaveNothing) {
  EXPECT_EQ(reason(linear), "");
  EXPECT_EQ(try_wgmma_codes(context_, quant_linear), "");
  EXPECT_EQ(try_attention(context_, attention, true), "");
  EXPECT_EQ(try_attention(context_, attention, false), "");
  EXPECT_EQ(try_code_attention(context_, attention), "");
  EXPECT_EQ(try_quant_linears(context_, quant_linear), "");
  EXPECT_EQ(try_rounded_linears(context_, quant_linear), "");
  EXPECT_EQ(try_experts(context_, grouped_linear), "");
  EXPECT_EQ(try_norms(context_, rms_norm), "");
  EXPECT_EQ(try_rounding_norms(context_, rms_norm), "");
  EXPECT_EQ(try_code_writes(context_, rope_kv_write), "");
  EXPECT_EQ(try_sampling(context_, sample), "");
  EXPECT_GT(api_.calls("launch"), 0);
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
}

void wrong_with_silu(const LinearArgs& args, Stream stream) {
  LinearArgs bad = args;
  if (args.has_wgmma && args.dtype == DType::kF16) bad.silu_mul = bad.layout.gate_up = false;
  if (bad.silu_mul != args.silu_mul) bad.layout.n /= 2;
  linear(bad, stream);
}

TEST_F(KernelTrial, EveryEpilogueAndTypeIsTried) {
  EXPECT_EQ(reason(wrong_with_silu), "of 1 rows in float16 with SiLU they differ");
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
  EXPECT_EQ(try_rounded_linears(context_, off_by_eight<32, Activations::kInt8Rows>),
            "of 32 rows they differ with int8 weights and rows");
  EXPECT_EQ(try_rounded_linears(context_, off_by_eight<0, Activations::kFloat8Rows>),
            "values are wrong with FP8 weights and rows");
  EXPECT_EQ(try_rounded_linears(context_, off_by_eight<0, Activations::kFloat8Groups>),
            "values are wrong with FP8 weights and rows in groups");
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

/// Neighbours are pairs.
void other_pairs(const RopeKvWriteArgs& args, Stream stream) {
  RopeKvWriteArgs bad = args;
  bad.interleaved = true;
  rope_kv_write(bad, stream);
}

/// Keys and values change places.
template <DType kBad>
void swapped(const RopeKvWriteArgs& args, Stream stream) {
  RopeKvWriteArgs bad = args;
  if (args.cache_dtype == kBad) std::swap(bad.keys, bad.values);
  rope_kv_write(bad, stream);
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

/// Kernels that a trial launches one by one.
template <class Try>
int launches(const Try& run) {
  FakeCudaApi api;
  CudaContext context(api, 0);
  EXPECT_EQ(run(context), "");
  return api.calls("kernel");
}

// A fault in each trial in turn: its kernels are replaced, by name, and requests are answered as
// ever.
TEST(KernelTrialAtLoad, WhatFailsIsReplacedWithAWarning) {
  const int linears = launches([](CudaContext& c) { return try_wgmma_linears(c, linear); });
  const int products = launches([](CudaContext& c) { return try_wgmma_codes(c, quant_linear); });
  const int attends = launches([](CudaContext& c) { return try_attention(c, attention, true); });
  const int codes = launches([](CudaContext& c) { return try_code_attention(c, attention); });
  struct Fault {
    int nth;
    const char* kernels;
  };
  std::vector<int32_t> expected;
  for (const Fault& fault :
       {Fault{0, ""}, Fault{3, "linears by wgmma"}, Fault{linears + 3, "FP8 linears by wgmma"},
        Fault{linears + products + 3, "attention by wgmma"},
        Fault{linears + products + attends + 1, "attention over quantized KV caches"},
        Fault{linears + products + attends + codes + 1, "sampling"}}) {
    SCOPED_TRACE(fault.kernels);
    EmulatedGpu gpu;
    gpu.try_kernels = fault.nth > 0;
    if (gpu.try_kernels) gpu.api.fail("kernel", 98, fault.nth);
    const std::shared_ptr<Backend> backend = gpu.backend(DType::kF32);
    const std::vector<std::string> replaced = backend->device_info().replaced_kernels;
    ASSERT_EQ(replaced.size(), fault.nth > 0 ? 1u : 0u);
    if (fault.nth > 0) {
      EXPECT_EQ(replaced[0].find(fault.kernels), 0u) << replaced[0];
      EXPECT_NE(replaced[0].find("fake error 98"), std::string::npos) << replaced[0];
    }
    const auto open = [&](const ModelOptions&, bool, const BackendNeeds&, Logger&) {
      return backend;
    };
    const auto engine = internal::EngineAccess::make(
        {}, [&](const std::string& name, const ModelOptions& options,
                const internal::ReplicaPlace& replica, Logger& logger) {
          return internal::load_model_on(open, name, options, replica, logger);
        });
    engine->install_model("m", small_options());
    engine->start_model("m");
    EXPECT_EQ(engine->model_info("m").replaced_kernels, replaced);
    Request request = engine->submit("m", small_request(20, 3, 6));
    const auto answer = read_all(request.results());
    EXPECT_EQ(answer.error_message, "");
    if (expected.empty()) expected = answer.token_ids;
    EXPECT_EQ(answer.token_ids, expected);
  }
}

/// What a trial's kernels are needed for.
struct Needed {
  const char* kernels;
  int launches;
  std::function<void(CudaBackend&)> use;
};

// Nothing replaces these: what needs them is refused by name, and nothing else.
TEST(KernelTrialAtLoad, WhatNothingReplacesIsRefused) {
  WeightSpec int4{.storage = DType::kBF16,
                  .quant = {.bits = 4, .group_size = 32, .activations = Activations::kWhole}};
  WeightSpec fp8{.storage = DType::kBF16,
                 .quant = {.bits = 8, .group_size = 128, .activations = Activations::kFloat8Rows}};
  WeightSpec experts{.storage = DType::kBF16, .experts = 2};
  const std::vector<Needed> all = {
      {"linears of int4 and int8 weights",
       launches([](CudaContext& c) { return try_quant_linears(c, quant_linear); }),
       [&](CudaBackend& gpu) { gpu.pack_weight(int4); }},
      {"linears of FP8 and int8 weights and rows",
       launches([](CudaContext& c) { return try_rounded_linears(c, quant_linear); }),
       [&](CudaBackend& gpu) { gpu.pack_weight(fp8); }},
      {"products of experts",
       launches([](CudaContext& c) { return try_experts(c, grouped_linear); }),
       [&](CudaBackend& gpu) { gpu.pack_weight(experts); }},
      {"RMS norms", launches([](CudaContext& c) { return try_norms(c, rms_norm); }),
       [](CudaBackend& gpu) { gpu.require({.storage = DType::kBF16, .head_dim = 64}); }},
      {"writes to quantized KV caches",
       launches([](CudaContext& c) { return try_code_writes(c, rope_kv_write); }),
       [](CudaBackend& gpu) { gpu.make_kv_cache({1, 1, 64, 16, DType::kI8}, 1); }}};
  int before = launches([](CudaContext& c) { return try_attention(c, attention, false); }) +
               launches([](CudaContext& c) { return try_code_attention(c, attention); }) +
               launches([](CudaContext& c) { return try_sampling(c, sample); });
  for (const Needed& needed : all) {
    SCOPED_TRACE(needed.kernels);
    EmulatedGpu gpu{.plain_kernels = true, .try_kernels = true};
    gpu.api.fail("kernel", 98, before + 1);
    before += needed.launches;
    const std::shared_ptr<CudaBackend> backend = gpu.backend(DType::kBF16);
    ASSERT_EQ(backend->device_info().replaced_kernels.size(), 1u);
    EXPECT_EQ(backend->device_info().replaced_kernels[0].find(needed.kernels), 0u);
    headrace::testing::expect_error(
        ErrorCode::kUnsupported,
        {needed.kernels, "fake error 98", "Fake GPU", "CUDA 13.0", "use device cpu"},
        [&] { needed.use(*backend); });
    if (needed.kernels != std::string("RMS norms")) {
      backend->require({.storage = DType::kBF16, .head_dim = 64});
    }
    backend->make_kv_cache({1, 1, 64, 16, DType::kBF16}, 1);
  }
}

struct Decode {
  std::vector<float> logits;
  int kernels;
};

/// A prompt, then one more token.
Decode decode(EmulatedGpu& gpu, const std::string& format) {
  gpu.record_steps = false;
  const HarnessOptions options{.storage = DType::kBF16,
                               .kv_dtype = DType::kBF16,
                               .quantization = parse_quantization(format, 0)};
  DecoderHarness harness(gpu.backend(DType::kBF16), load_golden_case("llama").folder, options);
  harness.start(0, 5);
  harness.step({{0, {3, 1, 4, 1, 5}}});
  const int before = gpu.api.calls("kernel");
  auto logits = harness.step({{0, {9}}}).back();
  return {std::move(logits), gpu.api.calls("kernel") - before};
}

// Norms round the rows of two linears of each layer. Where they fail their trial, each of these has
// one kernel more, and the same bits.
TEST(KernelTrialAtLoad, NormsThatRoundAreReplaced) {
  const int trial = launches([](CudaContext& c) { return try_rounding_norms(c, rms_norm); });
  EmulatedGpu tried{.plain_kernels = true, .try_kernels = true};
  tried.backend(DType::kBF16);
  const int first = tried.api.calls("kernel") - trial + 1;
  for (const char* format : {"fp8", "block_wise_fp8"}) {
    EmulatedGpu whole{.plain_kernels = true};
    EmulatedGpu faulty{.plain_kernels = true, .try_kernels = true};
    faulty.api.fail("kernel", 98, first);
    const Decode wanted = decode(faulty, format), got = decode(whole, format);
    EXPECT_EQ(got.logits, wanted.logits);
    constexpr int kLayers = 2;
    EXPECT_EQ(got.kernels, wanted.kernels - 2 * kLayers) << format;
  }
}

// Once for each build and GPU, and again after a failure; what others may have written is no proof.
TEST(KernelTrialAtLoad, AGpuThatHasPassedIsRemembered) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "trials" / "of_kernels";
  std::filesystem::remove_all(folder);
  const auto launches = [&](const std::string& build, int failing = 0) {
    EmulatedGpu gpu{.plain_kernels = true, .try_kernels = true, .trials_folder = folder};
    gpu.api.build_name = build;
    if (failing > 0) gpu.api.fail("kernel", 98, failing);
    gpu.backend(DType::kF32);
    return gpu.api.calls("kernel");
  };
  EXPECT_GT(launches("one build", 3), 0);
  EXPECT_GT(launches("one build"), 0);
  EXPECT_EQ(launches("one build"), 0);
  EXPECT_GT(launches("another build"), 0);
  EXPECT_EQ(launches("another build"), 0);
  namespace fs = std::filesystem;
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 2);
  for (const fs::path& file : fs::directory_iterator(folder)) {
    fs::permissions(file, fs::perms::others_write, fs::perm_options::add);
  }
  EXPECT_GT(launches("one build"), 0);
  for (const fs::path& file : fs::directory_iterator(folder)) fs::resize_file(file, 10);
  EXPECT_GT(launches("one build"), 0);
  EXPECT_EQ(launches("one build"), 0);
  fs::remove_all(folder);
}

// A folder that can't be made costs nothing but the trials.
TEST(KernelTrialAtLoad, WithoutAFolderKernelsAreTriedEachTime) {
  for (const char* folder : {"", "relative", "/dev/null/folder"}) {
    for (int i = 0; i < 2; ++i) {
      EmulatedGpu gpu{.plain_kernels = true, .try_kernels = true, .trials_folder = folder};
      gpu.backend(DType::kF32);
      EXPECT_GT(gpu.api.calls("kernel"), 0) << folder;
    }
  }
  EXPECT_FALSE(std::filesystem::exists("relative"));
}

TEST(KernelTrialAtLoad, TheLogWarns) {
  EmulatedGpu gpu;
  gpu.try_kernels = true;
  gpu.api.fail("kernel", 98, 3);
  std::string warnings;
  Logger logger([&](LogLevel, std::string_view text) { warnings += text; }, LogLevel::kWarning);
  const auto open = [&](const ModelOptions&, bool, const BackendNeeds& needs, Logger&) {
    return gpu.backend(needs.storage);
  };
  internal::load_model_on(open, "m", small_options(), {}, logger);
  EXPECT_NE(warnings.find("linears by wgmma"), std::string::npos) << warnings;
  EXPECT_NE(warnings.find("fake error 98"), std::string::npos) << warnings;
}

}  // namespace
}  // namespace headrace::cuda
