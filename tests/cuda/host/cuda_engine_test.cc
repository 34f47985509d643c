// The engine on the CUDA backend.

#include <gtest/gtest.h>

#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "cpp/engine/expect_error.h"
#include "cpp/engine/tiny_folder.h"
#include "cpp/model/lora_files.h"
#include "cuda/host/support/emulated_engine.h"
#include "cuda/host/support/engine_requests.h"
#include "every_case.h"
#include "fakes/fake_engine.h"
#include "model/config/model_config.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

using testing::expect_error;
using testing::read_all;

class CudaEngine : public ::testing::Test {
 protected:
  cuda::EmulatedGpu gpu_;
};

// What is asked for in steps: chunks, decodes up to the longest context, lists of all kinds.
TEST_F(CudaEngine, NoStepTakesMemory) {
  const auto engine = emulated_engine(gpu_);
  engine->install_model("m", small_options());
  engine->start_model("m");
  gpu_.api.reset_calls();
  std::vector<Request> requests;
  for (int32_t i = 0; i < 6; ++i) {
    RequestOptions one = small_request(i == 0 ? 240 : 10 + 20 * i, i, i == 0 ? 16 : 6);
    if (i % 2 == 1) {
      one.sampling.temperature = 1.0f;
      one.sampling.repetition_penalty = 1.1f;
      one.sampling.logit_bias = {{5, 1.0f}, {9, -100.0f}};
      one.sampling.logprobs = 20;
    }
    requests.push_back(engine->submit("m", std::move(one)));
  }
  for (Request& one : requests) EXPECT_EQ(read_all(one.results()).error_message, "");
  EXPECT_GT(gpu_.api.calls("launch"), 0);
  EXPECT_EQ(gpu_.api.calls("malloc_device"), 0);
  EXPECT_EQ(gpu_.api.calls("malloc_pinned"), 0);
}

/// What a greedy decode of one sequence launches, in bfloat16.
int kernels_of_decode(const std::string& layers, const std::string& quantization = "") {
  cuda::EmulatedGpu gpu{.record_steps = false};
  const testing::TinyFolder folder(R"(, "head_dim": 64)", layers);
  const auto engine = emulated_engine(gpu);
  ModelOptions options = small_options();
  options.path = folder.path();
  options.dtype = "bfloat16";
  options.quantization = quantization;
  options.dummy_weights = true;
  engine->install_model("m", options);
  engine->start_model("m");
  const auto launched = [&](int32_t tokens) {
    gpu.api.reset_calls();
    EXPECT_EQ(read_all(engine->submit("m", small_request(5, 1, tokens)).results()).error_message,
              "");
    return gpu.api.calls("kernel");
  };
  launched(2);
  const int fewer = launched(4);
  return launched(5) - fewer;
}

// docs/cuda_kernels.md says so.
TEST(CudaDecode, IsEightKernelsALayerAndSixMore) {
  EXPECT_EQ(kernels_of_decode("2"), 2 * 8 + 6);
  EXPECT_EQ(kernels_of_decode("3"), 3 * 8 + 6);
  EXPECT_EQ(kernels_of_decode("3", "wint4"), 3 * 8 + 6);
  EXPECT_EQ(kernels_of_decode("3", "fp8"), 3 * 10 + 6);
}

// A program's own code for GPUs goes on where it was: which GPU is current is its thread's matter.
TEST_F(CudaEngine, TheCallersGpuStaysTheCurrentOne) {
  gpu_.api.add_devices(2);
  const TempFolder adapter;
  write_adapter(adapter, load_model_config(llama_folder()), {});
  const auto expect_current = [&](const char* behind) {
    int current = -1;
    EXPECT_EQ(gpu_.api.current_device(&current), cuda::kSuccess);
    EXPECT_EQ(current, 2) << behind;
  };
  ASSERT_EQ(gpu_.api.set_device(2), cuda::kSuccess);
  for (const auto& devices : {std::vector<std::string>{"cuda:1"}, {"cuda:0", "cuda:1"}}) {
    SCOPED_TRACE(devices.size());
    const auto engine = emulated_engine(gpu_);
    ModelOptions options = small_options();
    options.device = "auto";
    options.devices = devices;
    options.max_loras = 1;
    gpu_.api.fail("malloc_device", 98);
    EXPECT_THROW(engine->install_model("m", options), Error);
    expect_current("an install that fails");
    engine->install_model("m", options);
    expect_current("install_model");
    engine->start_model("m");
    expect_current("start_model");
    engine->load_lora("m", "a", adapter.path().string());
    expect_current("load_lora");
    EXPECT_EQ(read_all(engine->submit("m", small_request(9, 1, 3)).results()).error_message, "");
    engine->unload_lora("m", "a");
    EXPECT_GT(engine->model_stats("m").memory_bytes, 0u);
    expect_current("unload_lora");
    engine->release_model("m");
    expect_current("release_model");
  }
  ASSERT_EQ(gpu_.api.set_device(0), cuda::kSuccess);
}

constexpr size_t kMiB = size_t{1} << 20;

/// As many blocks as memory allows.
ModelOptions greedy_for_memory(ModelOptions options) {
  options.max_model_len = 512;
  options.max_num_seqs = options.max_num_batched_tokens = 2048;
  options.num_kv_blocks = 0;
  return options;
}

TEST_F(CudaEngine, TakesItsShareOfWhatIsFreeAndSaysWhereItWent) {
  gpu_.api.total_bytes = 600 * kMiB;
  gpu_.api.others_bytes = 200 * kMiB;
  for (const double share : {0.5, 0.8}) {
    const auto engine = emulated_engine(gpu_);
    ModelOptions half = greedy_for_memory(small_options());
    half.memory_utilization = share;
    engine->install_model("m", half);
    const ModelInfo info = engine->model_info("m");
    const size_t taken = gpu_.api.device_bytes();
    const auto budget = static_cast<size_t>(share * 400 * kMiB);
    EXPECT_LE(taken, budget);
    EXPECT_GE(taken + 4 * kMiB, budget);
    // One block more than it has takes what padding writes. The cache of embeddings that requests
    // may bring is set aside.
    const size_t block = info.kv_cache_bytes / static_cast<size_t>(info.num_kv_blocks);
    EXPECT_GT(info.encoder_cache_bytes, 0u);
    EXPECT_EQ(
        info.weight_bytes + info.scratch_bytes + info.reserved_bytes + info.kv_cache_bytes + block,
        taken + info.encoder_cache_bytes);
    EXPECT_EQ(info.device_free_bytes, 400 * kMiB - taken);
    engine->start_model("m");
    EXPECT_EQ(gpu_.api.device_bytes(), taken);
  }
  EXPECT_EQ(gpu_.api.device_bytes(), 0u);
}

TEST_F(CudaEngine, AShareOfTheTotalIsBoundedByWhatIsFree) {
  gpu_.api.total_bytes = 600 * kMiB;
  const auto taken = [&](double ratio, size_t leftover) {
    const auto engine = emulated_engine(gpu_);
    ModelOptions bfc = greedy_for_memory(small_options());
    bfc.total_memory_ratio = ratio;
    bfc.memory_leftover_bytes = leftover;
    engine->install_model("m", bfc);
    return gpu_.api.device_bytes();
  };
  EXPECT_NEAR(static_cast<double>(taken(0.5, 100 * kMiB)), 250.0 * kMiB, 4.0 * kMiB);
  gpu_.api.others_bytes = 350 * kMiB;
  EXPECT_LE(taken(0.9, 0), 250 * kMiB);
}

TEST_F(CudaEngine, TwoShareACardAndGiveItBack) {
  gpu_.api.total_bytes = 800 * kMiB;
  {
    const auto one = emulated_engine(gpu_), other = emulated_engine(gpu_);
    std::vector<std::vector<int32_t>> answers;
    for (Engine* engine : {one.get(), other.get()}) {
      ModelOptions half = greedy_for_memory(small_options());
      half.memory_utilization = 0.5;
      engine->install_model("m", half);
      engine->start_model("m");
    }
    for (Engine* engine : {one.get(), other.get()}) {
      answers.push_back(read_all(engine->submit("m", small_request(9, 1, 8)).results()).token_ids);
    }
    EXPECT_EQ(answers[0], answers[1]);
    const size_t both = gpu_.api.device_bytes();
    one->release_model("m");
    EXPECT_LT(gpu_.api.device_bytes(), both);
    EXPECT_EQ(read_all(other->submit("m", small_request(9, 1, 8)).results()).token_ids, answers[0]);
  }
  EXPECT_EQ(gpu_.api.device_bytes(), 0u);
}

// Too little for the weights, for the largest steps, for one block: what was taken is given back.
TEST_F(CudaEngine, TooLittleMemoryNamesRemedies) {
  gpu_.api.total_bytes = 600 * kMiB;
  const auto engine = emulated_engine(gpu_);
  for (const size_t free_bytes : {1 * kMiB, 40 * kMiB, 70 * kMiB}) {
    gpu_.api.others_bytes = 600 * kMiB - free_bytes;
    ModelOptions large = greedy_for_memory(small_options());
    large.memory_utilization = 1.0;
    large.max_num_batched_tokens = 8192;
    expect_error(ErrorCode::kOutOfMemory, {"max_num_batched_tokens", "free"},
                 [&] { engine->install_model("m", large); });
    EXPECT_EQ(gpu_.api.device_bytes(), 0u) << free_bytes;
  }
  gpu_.api.others_bytes = 500 * kMiB;
  engine->install_model("m", small_options());
}

/// Runs a step of `rows` sequences of one token each, all sampled from. `draws`: StepBatch's.
TensorView decode(internal::StepRunner& runner, int32_t rows,
                  std::span<const SampleRow> draws = {}) {
  const auto count = static_cast<size_t>(rows);
  std::vector<int32_t> tokens(count, 3), positions(count, 0), lens(count, 1), numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  std::vector<SeqSlice> slices;
  for (int32_t i = 0; i < rows; ++i) {
    slices.push_back({i, 1, 0, std::span(numbers).subspan(static_cast<size_t>(i), 1)});
  }
  StepBatch batch{tokens, positions, lens, slices, numbers};
  batch.draws = draws;
  return runner.forward(batch, {});
}

/// For up to 300 sequences.
internal::LoadedModel large_model(cuda::EmulatedGpu& gpu) {
  ModelOptions many = small_options();
  many.max_num_seqs = many.max_num_batched_tokens = 300;
  many.num_kv_blocks = 300;
  const auto open = [&](const ModelOptions&, bool, const BackendNeeds& needs, Logger&) {
    return gpu.backend(needs.storage);
  };
  Logger logger;
  return internal::load_model_on(open, "m", many, {}, logger);
}

TEST_F(CudaEngine, DecodesOfUpTo256SequencesAreOneLaunch) {
  const internal::LoadedModel model = large_model(gpu_);
  internal::StepRunner& runner = *model.runner;
  for (const int32_t rows : {1, 128, 129, 200, 256}) {
    if (!every_case() && (rows == 128 || rows == 200)) continue;
    SCOPED_TRACE(rows);
    decode(runner, rows);
    for (int again = 0; again < 2; ++again) {
      gpu_.api.reset_calls();
      EXPECT_EQ(decode(runner, rows).rows(), rows);
      EXPECT_EQ(gpu_.api.calls("launch"), 1);
    }
    EXPECT_EQ(gpu_.api.calls("kernel"), 0);
  }
}

// What the first request decodes by has been recorded at start-up.
TEST_F(CudaEngine, TheFirstDecodesAreRecordedAlready) {
  const auto engine = emulated_engine(gpu_);
  engine->install_model("m", small_options());
  engine->start_model("m");
  EXPECT_GE(gpu_.api.calls("upload"), 1);
  gpu_.api.reset_calls();
  EXPECT_EQ(read_all(engine->submit("m", small_request(9, 1, 6)).results()).error_message, "");
  EXPECT_EQ(gpu_.api.calls("begin_capture"), 0);
  EXPECT_EQ(gpu_.api.calls("launch"), 5);
}

std::vector<int32_t> drawn_from(internal::StepRunner& runner, const TensorView& logits,
                                std::span<const SampleRow> draws) {
  runner.begin_sample(logits, draws);
  std::vector<SampleResult> results(draws.size());
  runner.end_sample(results);
  std::vector<int32_t> out;
  for (const SampleResult& result : results) out.push_back(result.finite ? result.token : -1);
  return out;
}

// Rows of all plain kinds, with padding behind them: the ids are those of draws behind the step.
TEST_F(CudaEngine, DrawsArePartOfTheRecordedStep) {
  const internal::LoadedModel model = large_model(gpu_);
  internal::StepRunner& runner = *model.runner;
  for (const int32_t rows : {1, 3, 20}) {
    SCOPED_TRACE(rows);
    std::vector<SampleRow> draws(static_cast<size_t>(rows));
    for (size_t i = 0; i < draws.size(); ++i) {
      draws[i].logits_row = static_cast<int32_t>(i);
      draws[i].greedy = i % 3 == 1;
      draws[i].seed = i;
      draws[i].temperature = i % 2 == 0 ? 1.0f : 3.0f;
      draws[i].top_k = i % 4 == 0 ? 0 : 20;
      draws[i].top_p = i % 5 == 0 ? 1.0f : 0.9f;
    }
    for (uint64_t position = 0; position < 4; ++position) {  // run, recorded, launched, launched
      SCOPED_TRACE(position);
      for (SampleRow& row : draws) row.position = position;
      const std::vector<int32_t> want = drawn_from(runner, decode(runner, rows), draws);
      gpu_.api.reset_calls();
      const TensorView logits = decode(runner, rows, draws);
      EXPECT_EQ(gpu_.api.calls("launch"), position > 0 ? 1 : 0);
      // A recording passes by as kernels that are launched.
      if (position > 1) {
        EXPECT_EQ(gpu_.api.calls("kernel"), 0);
      }
      EXPECT_GE(gpu_.api.calls("copy"), 1);  // of the step's inputs
      gpu_.api.reset_calls();
      EXPECT_EQ(drawn_from(runner, logits, draws), want);
      for (const char* call : {"launch", "kernel", "copy", "malloc_pinned", "malloc_device"}) {
        EXPECT_EQ(gpu_.api.calls(call), 0) << call;
      }
    }
  }
}

// One row that asks for more: all of the step's are drawn behind it.
TEST_F(CudaEngine, DrawsThatAreNotPlainComeBehindTheStep) {
  const internal::LoadedModel model = large_model(gpu_);
  internal::StepRunner& runner = *model.runner;
  const std::vector<int32_t> ids = {3, 5};
  const std::vector<LogitBias> bias = {{3, 1.0f}};
  std::vector<SampleRow> special(4);
  special[0].masked = ids;
  special[1].banned = ids;
  special[2].bias = bias;
  special[3].num_logprobs = 2;
  std::vector<SampleRow> draws(2);
  draws[1].logits_row = 1;
  for (const SampleRow& row : special) {
    draws[0] = row;
    decode(runner, 2, draws);  // nobody collects this one
    for (int again = 0; again < 2; ++again) {
      const std::vector<int32_t> want = drawn_from(runner, decode(runner, 2), draws);
      const TensorView logits = decode(runner, 2, draws);
      gpu_.api.reset_calls();
      EXPECT_EQ(drawn_from(runner, logits, draws), want);
      EXPECT_EQ(gpu_.api.calls("kernel"), 4);  // those of sample()
    }
  }
  // No such draw is spread over many blocks.
  for (SampleRow& row : draws) row.num_logprobs = 2;
  draws[0].greedy = true;
  draws[1].top_k = 5;
  const TensorView logits = decode(runner, 2, draws);
  gpu_.api.reset_calls();
  drawn_from(runner, logits, draws);
  EXPECT_EQ(gpu_.api.calls("kernel"), 2);
}

// Prompts by turns that don't fit the cache together: what goes to host memory comes back as it
// was.
void expect_swapping(cuda::EmulatedGpu& gpu, const std::string& kv_cache_dtype) {
  const auto engine = emulated_engine(gpu);
  ModelOptions small = small_options();
  small.num_kv_blocks = 16;
  small.kv_cache_dtype = kv_cache_dtype;
  engine->install_model("without", small);
  small.swap_space = 1.0 / 16;
  engine->install_model("with", small);
  EXPECT_GT(engine->model_info("with").num_host_kv_blocks, 16);
  std::vector<std::vector<int32_t>> answers[2];
  for (const std::string name : {"without", "with"}) {
    engine->start_model(name);
    gpu.api.reset_calls();
    for (int32_t turn = 0; turn < 4; ++turn) {
      Request one = engine->submit(name, small_request(180, turn % 2, 6));
      const Output out = read_all(one.results());
      EXPECT_EQ(out.error_message, "");
      answers[name == "with"].push_back(out.token_ids);
      if (turn >= 2) {
        EXPECT_EQ(one.results().stats().host_cached_tokens > 0, name == "with");
      }
    }
    EXPECT_EQ(gpu.api.calls("malloc_pinned") + gpu.api.calls("malloc_device"), 0);
    EXPECT_EQ(gpu.api.calls("copy_rows") > 0, name == "with");
  }
  EXPECT_EQ(answers[0], answers[1]);
  gpu.api.fail("copy_rows", 999);
  Request failed = engine->submit("with", small_request(180, 0, 6));
  EXPECT_EQ(read_all(failed.results()).error_code, ErrorCode::kDevice);
  Request again = engine->submit("with", small_request(180, 0, 6));
  EXPECT_EQ(read_all(again.results()).token_ids, answers[0][0]);
}

TEST_F(CudaEngine, SwapSpaceGivesTheSameTokens) { expect_swapping(gpu_, "auto"); }

TEST_F(CudaEngine, SwapSpaceTakesScalesAlong) {
  for (const std::string dtype : {"int8", "fp8", "uint4"}) {
    if (!every_case() && dtype != "uint4") continue;
    SCOPED_TRACE(dtype);
    expect_swapping(gpu_, dtype);
  }
}

}  // namespace
}  // namespace headrace
