// What becomes of a GPU whose kernels fail their trials, with faults that are planted.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "cpp/engine/expect_error.h"
#include "cpp/model/checkpoint_files.h"
#include "cpp/model/decoder_harness.h"
#include "cpp/model/golden_case.h"
#include "cuda/host/support/emulated_gpu.h"
#include "cuda/host/support/engine_requests.h"
#include "cuda/host/trials/kernel_trials.h"
#include "engine/engine_access.h"
#include "engine/load/load_model.h"
#include "fakes/fake_engine.h"
#include "model/config/quantization.h"

namespace headrace::cuda {
namespace {

using headrace::testing::expect_error;
using headrace::testing::read_all;

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
  const int quants =
      launches([](CudaContext& c) { return try_wgmma_quant_linears(c, quant_linear); });
  const int attends = launches([](CudaContext& c) { return try_attention(c, attention, true); });
  const int codes = launches([](CudaContext& c) { return try_code_attention(c, attention); });
  struct Fault {
    int nth;
    const char* kernels;
  };
  std::vector<int32_t> expected;
  for (const Fault& fault :
       {Fault{0, ""}, Fault{3, "linears by wgmma"}, Fault{linears + 3, "FP8 linears by wgmma"},
        Fault{linears + products + 3, "int4 and int8 linears by wgmma"},
        Fault{linears + products + quants + 3, "attention by wgmma"},
        Fault{linears + products + quants + attends + 1, "attention over quantized KV caches"},
        Fault{linears + products + quants + attends + codes + 1, "sampling"}}) {
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
  bool by_all = false;       ///< models of 16 bits
  bool with_others = false;  ///< what uses them needs another trial's kernels, too
};

// Nothing replaces these: what needs them is refused by name, and nothing else.
TEST(KernelTrialAtLoad, WhatNothingReplacesIsRefused) {
  WeightSpec int4{.storage = DType::kBF16,
                  .quant = {.bits = 4, .group_size = 32, .activations = Activations::kWhole}};
  WeightSpec fp8{.storage = DType::kBF16,
                 .quant = {.bits = 8, .group_size = 128, .activations = Activations::kFloat8Rows}};
  WeightSpec experts{.storage = DType::kBF16, .experts = 2};
  WeightSpec fp8_experts = fp8;
  fp8_experts.experts = 2;
  const auto load = [](CudaBackend& gpu) {
    gpu.require({.storage = DType::kBF16, .head_dim = 64});
  };
  const std::vector<Needed> all = {
      {"linears by mma.sync", launches([](CudaContext& c) { return try_linears(c, linear); }), load,
       true},
      {"linears of int4 and int8 weights",
       launches([](CudaContext& c) { return try_quant_linears(c, quant_linear); }),
       [&](CudaBackend& gpu) { gpu.pack_weight(int4); }},
      {"linears of FP8 and int8 weights and rows",
       launches([](CudaContext& c) { return try_rounded_linears(c, quant_linear); }),
       [&](CudaBackend& gpu) { gpu.pack_weight(fp8); }},
      {"products of experts",
       launches([](CudaContext& c) { return try_experts(c, grouped_linear); }),
       [&](CudaBackend& gpu) { gpu.pack_weight(experts); }},
      {"products of FP8 and int8 experts and rows",
       launches([](CudaContext& c) { return try_rounded_experts(c, grouped_linear); }),
       [&](CudaBackend& gpu) { gpu.pack_weight(fp8_experts); }, false, true},
      {"RMS norms", launches([](CudaContext& c) { return try_norms(c, rms_norm); }), load, true},
      {"writes to KV caches of 16 bits",
       launches([](CudaContext& c) { return try_half_writes(c, rope_kv_write); }), load, true},
      {"rows of tokens", launches([](CudaContext& c) { return try_copies(c, {}); }), load, true},
      {"writes to quantized KV caches",
       launches([](CudaContext& c) { return try_code_writes(c, rope_kv_write); }),
       [](CudaBackend& gpu) {
         gpu.make_kv_cache(CacheLayout::uniform(1, kv_rows(1, 64, DType::kI8), 16), 1, 0);
       }}};
  const int first = launches([](CudaContext& c) { return try_attention(c, attention, false); }) +
                    launches([](CudaContext& c) { return try_code_attention(c, attention); }) +
                    launches([](CudaContext& c) { return try_sampling(c, sample); });
  // Faults in trials one by one where others' would hide them, and in the rest at once.
  std::vector<std::vector<const Needed*>> groups(1);
  for (const Needed& needed : all) {
    if (needed.by_all || needed.with_others) {
      groups.push_back({&needed});
    } else {
      groups.front().push_back(&needed);
    }
  }
  for (const auto& group : groups) {
    EmulatedGpu gpu{.plain_kernels = true, .try_kernels = true};
    int place = first;
    for (const Needed& needed : all) {
      const bool fails = std::ranges::find(group, &needed) != group.end();
      if (fails) gpu.api.also_fail("kernel", 98, place + 1);
      place += fails ? 1 : needed.launches;  // which end there
    }
    const std::shared_ptr<CudaBackend> backend = gpu.backend(DType::kBF16);
    const std::vector<std::string> refused = backend->device_info().replaced_kernels;
    ASSERT_EQ(refused.size(), group.size());
    for (size_t i = 0; i < group.size(); ++i) {
      SCOPED_TRACE(group[i]->kernels);
      EXPECT_EQ(refused[i].find(group[i]->kernels), 0u) << refused[i];
      expect_error(ErrorCode::kUnsupported,
                   {group[i]->kernels, "fake error 98", "Fake GPU", "CUDA 13.0", "use device cpu"},
                   [&] { group[i]->use(*backend); });
    }
    if (!group.front()->by_all) load(*backend);
    backend->make_kv_cache(CacheLayout::uniform(1, kv_rows(1, 64, DType::kBF16), 16), 1, 0);
  }
}

// What only some models need is tried when one of them is there, once.
TEST(KernelTrialAtLoad, AModelsKernelsAreTriedWithIt) {
  EmulatedGpu gpu;
  const std::shared_ptr<CudaBackend> backend = gpu.backend(DType::kF16);
  EXPECT_EQ(gpu.api.calls("kernel"), 0);
  gpu.try_kernels = true;
  const auto tries = gpu.backend(DType::kF16);
  const auto used = [&](const BackendNeeds& needs) {
    const int before = gpu.api.calls("kernel");
    tries->require(needs);
    return gpu.api.calls("kernel") - before;
  };
  BackendNeeds needs{.storage = DType::kF16, .kv_dtype = DType::kF16, .head_dim = 96};
  EXPECT_GT(used(needs), 0);
  EXPECT_EQ(used(needs), 0);
  needs.head_dim = 64;
  EXPECT_GT(used(needs), 0);
  needs.experts = 8;
  EXPECT_GT(used(needs), 0);
  needs.adapters = true;
  EXPECT_GT(used(needs), 0);
  needs.vision = true;
  needs.tower_head_dim = 72;
  EXPECT_GT(used(needs), 0);
  EXPECT_EQ(used(needs), 0);
  EXPECT_TRUE(tries->device_info().replaced_kernels.empty());
}

TEST(KernelTrialAtLoad, AModelsKernelsAreReplacedOrRefused) {
  const TempFolder records;  // what every model needs is tried once
  EmulatedGpu gpu{.try_kernels = true, .trials_folder = records.path().string()};
  const auto after = [&](const BackendNeeds& needs) {
    const auto backend = gpu.backend(DType::kF16);
    gpu.api.fail("kernel", 98, 1);
    backend->require(needs);
    return backend->device_info().replaced_kernels;
  };
  BackendNeeds needs{.storage = DType::kF16, .kv_dtype = DType::kF16, .head_dim = 96};
  const auto of_heads = after(needs);
  ASSERT_EQ(of_heads.size(), 1u);
  EXPECT_EQ(of_heads[0].find("attention by tensor cores (the GPU refused a kernel"), 0u)
      << of_heads[0];
  needs.kv_dtype = DType::kU4;
  EXPECT_EQ(after(needs)[0].find("attention over quantized KV caches"), 0u);
  needs.head_dim = 32;  // which has plain kernels alone, and over codes no trial
  BackendNeeds adapters = needs, plain = needs, experts = needs, tower = needs;
  plain.kv_dtype = DType::kF16;
  adapters.adapters = true;
  experts.experts = 8;
  tower.vision = true;
  tower.tower_head_dim = 64;
  for (const auto& [kernels, model] : {std::pair{"adapters", adapters},
                                       {"plain attention", plain},
                                       {"choices of experts", experts},
                                       {"vision towers", tower}}) {
    expect_error(ErrorCode::kUnsupported, {kernels, "fake error 98", "Fake GPU", "CUDA 13.0"},
                 [&, &needed = model] { after(needed); });
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
  EXPECT_NE(warnings.find("kernels failed their trial: linears by wgmma"), std::string::npos)
      << warnings;
  EXPECT_NE(warnings.find("those by mma.sync run"), std::string::npos) << warnings;
  EXPECT_NE(warnings.find("fake error 98"), std::string::npos) << warnings;
}

}  // namespace
}  // namespace headrace::cuda
