// The CUDA backend's host side: waits, memory, faults.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cpp/model/expect_error.h"
#include "cuda/host/memory/device_kv_cache.h"
#include "cuda/host/support/emulated_gpu.h"
#include "cuda/host/support/generate.h"
#include "cuda/host/support/uploaded.h"
#include "model/config/quantization.h"
#include "parity/parity.h"

namespace headrace {
namespace {

using cuda::EmulatedGpu;

class CudaBackendTest : public testing::Test {
 protected:
  EmulatedGpu gpu_;
};

TEST_F(CudaBackendTest, AStepWaitsOnlyToReadItsResults) {
  DecoderHarness harness(gpu_.backend(DType::kF32), llama_folder(), {});
  generate_alone(harness, 0, prompt(5, 1), 6);
  gpu_.api.reset_calls();
  harness.step({{0, {1}}});
  EXPECT_LE(gpu_.api.calls("synchronize"), 2);  // read_back's own
  EXPECT_EQ(gpu_.api.calls("malloc_device") + gpu_.api.calls("malloc_pinned"), 0);
}

// Adapters come by a stream of their own, and may get memory that queued ops still read.
TEST_F(CudaBackendTest, AnAdapterOverwritesNothingThatIsStillRead) {
  constexpr int64_t kSide = 256, kRank = 16;  // A and B take what x does
  const auto backend = gpu_.backend(DType::kF32);
  const size_t bytes = 2 * kRank * kSide * sizeof(float);
  const std::vector<float> values(2 * kRank * kSide, 3.0f), numbers(kRank * kSide, 7.0f);
  std::vector<float> got(values.size());
  Backend::Buffer x = backend->allocate(bytes);
  const Backend::Buffer sum = backend->allocate(bytes);
  const auto view = [&](void* data) { return TensorView(data, DType::kF32, {2 * kRank, kSide}); };
  backend->write_rows(std::vector<float>(got.size(), 0.0f), view(sum.data));
  backend->write_rows(values, view(x.data));
  backend->add(view(x.data), view(sum.data));
  const void* const place = x.data;
  x = {};
  LoraSpec spec{{}, kSide, kSide, DType::kF32};
  spec.parts.push_back({{.data = numbers.data(), .n = kRank, .k = kSide, .row_stride = kSide},
                        {.data = numbers.data(), .n = kSide, .k = kRank, .row_stride = kRank}});
  const auto lora = backend->pack_lora(spec);
  EXPECT_EQ(backend->bytes_in_use(), 2 * bytes);
  backend->read_back(sum.data, got.data(), bytes);
  EXPECT_EQ(got, values);
  backend->read_back(place, got.data(), bytes);
  EXPECT_EQ(got.front(), 7.0f) << "the adapter got other memory: this tests nothing";
}

constexpr int64_t kRows = 3, kCols = 136, kOutputs = 16;

// A linear takes what a norm has rounded for it, unless anything was launched or written between
// them, or it reads other rows or another format.
TEST_F(CudaBackendTest, RowsThatNormsRound) {
  constexpr DType kType = DType::kBF16;
  const auto gpu = gpu_.backend(kType);
  const auto numbers = random_values(kOutputs * kCols, 1, DType::kF32);
  const parity::StoredMatrix matrix(numbers, kOutputs, kCols, DType::kF32);
  const auto pack = [&](Activations kind) {
    return gpu->pack_weight({{matrix.part()},
                             kType,
                             WeightUse::kLinear,
                             {.bits = 8, .group_size = 128, .activations = kind}});
  };
  const auto rows = pack(Activations::kFloat8Rows), groups = pack(Activations::kFloat8Groups);
  const auto more = random_values(kRows * kCols, 2, kType);
  const Uploaded x(*gpu, kType, kRows, kCols, more), y(*gpu, kType, kRows, kCols);
  const Uploaded scale(*gpu, kType, 1, kCols, random_values(kCols, 3, kType));
  const Uploaded out(*gpu, DType::kF32, kRows, kOutputs);
  const auto norm = [&](const Uploaded& to) {
    gpu->rms_norm(x.view(), scale.vector(), 1e-5f, to.view());
  };
  /// Launches of a linear of the norm's first `count` rows, and what it gives.
  const auto run = [&](const PackedWeight* expected, const PackedWeight& weight,
                       const std::function<void()>& between, int64_t count = kRows) {
    if (expected != nullptr) gpu->expect(*expected);
    norm(y);
    between();
    const int before = gpu_.api.calls("kernel");
    gpu->linear(y.view().first_rows(count), weight, {}, out.view().first_rows(count));
    const int launches = gpu_.api.calls("kernel") - before;
    return std::pair{launches, out.read()};
  };
  const auto nothing = [] {};
  const auto apart = run(nullptr, *rows, nothing), in_groups = run(nullptr, *groups, nothing);
  EXPECT_EQ(apart.first, 2);
  EXPECT_EQ(run(rows.get(), *rows, nothing), std::pair(1, apart.second));
  EXPECT_EQ(run(rows.get(), *rows, nothing, 2), apart);  // row 2 is as it was
  EXPECT_EQ(run(groups.get(), *groups, nothing), std::pair(1, in_groups.second));
  EXPECT_EQ(run(rows.get(), *groups, nothing), in_groups);
  const Uploaded other(*gpu, kType, kRows, kCols);
  EXPECT_EQ(run(rows.get(), *rows, [&] { norm(other); }), apart);
  const auto write = [&] { gpu->write_rows(std::vector<float>(kRows * kCols, 0.0f), y.view()); };
  EXPECT_EQ(run(rows.get(), *rows, write),
            std::pair(2, std::vector<float>(kRows * kOutputs, 0.0f)));
}

// One by one, as it is recorded, and from the record.
TEST_F(CudaBackendTest, RecordedNormsRound) {
  DecoderHarness harness(gpu_.backend(DType::kBF16), llama_folder(),
                         {.storage = DType::kBF16,
                          .kv_dtype = DType::kBF16,
                          .quantization = parse_quantization("fp8", 0)});
  std::vector<float> first;
  for (int32_t i = 0; i < 4; ++i) {
    harness.start(i, 5);
    harness.step({{i, prompt(5, 1)}});
    const auto logits = harness.step({{i, {9}}}).back();
    if (i == 0) first = logits;
    EXPECT_EQ(logits, first) << i;
  }
  EXPECT_EQ(gpu_.api.calls("launch"), 3);
}

TEST_F(CudaBackendTest, GivesEverythingBack) {
  {
    DecoderHarness harness(gpu_.backend(DType::kBF16), llama_folder(), {.storage = DType::kBF16});
    generate_alone(harness, 0, prompt(5, 1), 3);
    EXPECT_GT(gpu_.api.device_bytes(), 0u);
  }
  EXPECT_EQ(gpu_.api.device_bytes(), 0u);
}

TEST_F(CudaBackendTest, OutOfMemoryNamesWhatIsFree) {
  gpu_.api.total_bytes = size_t{80} << 20;
  gpu_.api.others_bytes = size_t{10} << 20;
  const auto backend = gpu_.backend(DType::kF32);
  const Backend::Buffer held = backend->allocate(size_t{66} << 20);
  try {
    const Backend::Buffer more = backend->allocate(size_t{8} << 20);
    FAIL() << "was given";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_NE(std::string(error.what()).find("4 MiB of 80 MiB are free"), std::string::npos)
        << error.what();
  }
  EXPECT_FALSE(backend->lost());
  EXPECT_NO_THROW(backend->allocate(1 << 20));
}

TEST_F(CudaBackendTest, RefusesByName) {
  const auto backend = gpu_.backend(DType::kF32);
  const auto expect_refused = [](const auto& call, const char* what) {
    try {
      call();
      FAIL() << "was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("device cpu"), std::string::npos);
    }
  };
  BackendNeeds needs{DType::kF32, DType::kF32, 64, 64};
  needs.experts = 64;
  EXPECT_NO_THROW(backend->require(needs));
  needs.vision = needs.given_rows = true;
  EXPECT_NO_THROW(backend->require(needs));
  needs.head_dim = 24;
  expect_refused([&] { backend->require(needs); }, "head_dim 16, 32, ..., 512, not 24");
}

// The fake GPU runs what it is given as late as it may.
TEST_F(CudaBackendTest, BlocksGoToHostMemoryAndBackInOrder) {
  constexpr int32_t kBlocks = 4, kHostBlocks = 3, kLayers = 2;
  const auto backend = gpu_.backend(DType::kBF16);
  const CacheLayout layout = CacheLayout::uniform(kLayers, kv_rows(3, 32, DType::kBF16), 16);
  const auto cache = backend->make_kv_cache(layout, kBlocks, 0);
  const auto& device = dynamic_cast<const cuda::DeviceKvCache&>(*cache);
  const BlockCopy any{0, 0, true};
  EXPECT_THROW(backend->copy_blocks(*cache, std::span(&any, 1)), InternalError);
  backend->add_host_blocks(*cache, kHostBlocks);
  const size_t bytes = backend->kv_block_bytes(layout);
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    std::vector<std::byte> all((kBlocks + 1) * bytes);
    for (std::byte& byte : all) byte = static_cast<std::byte>(random());
    backend->upload(all.data(), device.block(0), all.size());
    std::vector<BlockCopy> copies;
    for (int32_t i = 0; i < kHostBlocks; ++i) copies.push_back({i, i, true});
    for (int i = 0; i < 20; ++i) {
      copies.push_back({static_cast<int32_t>(random() % kBlocks),
                        static_cast<int32_t>(random() % kHostBlocks), random() % 2 == 0});
    }
    gpu_.api.reset_calls();
    backend->copy_blocks(*cache, copies);
    EXPECT_EQ(gpu_.api.calls("synchronize") + gpu_.api.calls("malloc_pinned"), 0);
    std::vector<std::byte> host(kHostBlocks * bytes);
    for (const BlockCopy& copy : copies) {
      std::byte* const own = all.data() + static_cast<size_t>(copy.block) * bytes;
      std::byte* const other = host.data() + static_cast<size_t>(copy.host_block) * bytes;
      std::memcpy(copy.to_host ? other : own, copy.to_host ? own : other, bytes);
    }
    std::vector<std::byte> found(all.size());
    backend->read_back(device.block(0), found.data(), found.size());
    ASSERT_EQ(found, all);
  }
  backend->copy_blocks(*cache, std::span(&any, 1));  // and goes while it is under way
}

TEST_F(CudaBackendTest, HostBlocksThatCannotBePinnedNameTheOption) {
  const auto backend = gpu_.backend(DType::kF32);
  const auto cache =
      backend->make_kv_cache(CacheLayout::uniform(1, kv_rows(1, 16, DType::kF32), 16), 2, 0);
  gpu_.api.fail("malloc_pinned", cuda::kErrorMemoryAllocation);
  try {
    backend->add_host_blocks(*cache, 1 << 10);
    FAIL() << "was given";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_NE(std::string(error.what()).find("2 MiB of page-locked memory for swap_space"),
              std::string::npos)
        << error.what();
  }
  EXPECT_FALSE(backend->lost());
}

// Codes and their scales, in blocks of a head of 48: 8, 8 and 4 bits, the last in rows of 32 bytes.
TEST_F(CudaBackendTest, QuantizedCachesTakeWhatTheyHold) {
  const auto backend = gpu_.backend(DType::kBF16);
  const size_t rows = 2 * 3 * 2 * 16;
  for (const auto& [dtype, bytes] :
       {std::pair{DType::kBF16, 96}, {DType::kI8, 52}, {DType::kF8E4M3, 52}, {DType::kU4, 36}}) {
    const CacheLayout layout = CacheLayout::uniform(3, kv_rows(2, 48, dtype), 16);
    EXPECT_EQ(backend->kv_block_bytes(layout), rows * static_cast<size_t>(bytes));
    const auto cache = backend->make_kv_cache(layout, 2, 0);
    const auto& device = dynamic_cast<const cuda::DeviceKvCache&>(*cache);
    EXPECT_EQ(device.key_scales(0) == nullptr, dtype == DType::kBF16);
    if (dtype == DType::kBF16) continue;
    const auto* const first = device.block(0);
    const ptrdiff_t layer = 2 * 2 * 16 * bytes, codes = 2 * 2 * 16 * (bytes - 4);
    EXPECT_EQ(static_cast<std::byte*>(device.key_scales(0)) - first, codes);
    EXPECT_EQ(static_cast<std::byte*>(device.value_scales(2)) - first,
              2 * layer + codes + 2 * 16 * 4);
  }
}

TEST_F(CudaBackendTest, LatentRowsAreKeysAndValues) {
  const auto backend = gpu_.backend(DType::kBF16);
  const CacheLayout layout = CacheLayout::uniform(3, latent_rows(48, DType::kBF16), 16);
  EXPECT_EQ(backend->kv_block_bytes(layout), 3u * 16 * 96);
  const auto cache = backend->make_kv_cache(layout, 2, 0);
  const auto& device = dynamic_cast<const cuda::DeviceKvCache&>(*cache);
  EXPECT_EQ(device.values(2), device.keys(2));
  EXPECT_EQ(static_cast<std::byte*>(device.keys(2)) - device.block(0), 2 * 16 * 96);
}

TEST_F(CudaBackendTest, LatentRowsOfSizesWithoutKernelsAreRefused) {
  const auto backend = gpu_.backend(DType::kBF16);
  BackendNeeds needs{.storage = DType::kBF16, .kv_dtype = DType::kBF16, .latent = true};
  for (const int32_t row_dim : {16, 576, 640}) {
    needs.head_dim = row_dim;
    EXPECT_NO_THROW(backend->require(needs)) << row_dim;
  }
  needs.head_dim = 656;
  expect_error(ErrorCode::kUnsupported, {"16, 32, ..., 640, not 656", "device cpu"},
               [&] { backend->require(needs); });
}

TEST_F(CudaBackendTest, APassingErrorFailsItsStepAlone) {
  DecoderHarness harness(gpu_.backend(DType::kF32), llama_folder(), {});
  const Rows before = generate_alone(harness, 0, prompt(5, 1), 4);
  for (const char* call : {"copy", "synchronize", "launch", "kernel", "record"}) {
    gpu_.api.fail(call, 999);
    EXPECT_THROW(generate_alone(harness, 0, prompt(5, 1), 4), Error) << call;
    EXPECT_FALSE(harness.backend().lost());
    EXPECT_EQ(generate_alone(harness, 0, prompt(5, 1), 4), before) << call;
  }
}

TEST_F(CudaBackendTest, AFailedRecordingIsTriedAgain) {
  const Rows want = [&] {
    DecoderHarness harness(gpu_.backend(DType::kF32), llama_folder(), {});
    return generate_alone(harness, 0, prompt(5, 1), 4);
  }();
  for (const char* call : {"begin_capture", "end_capture", "instantiate"}) {
    DecoderHarness harness(gpu_.backend(DType::kF32), llama_folder(), {});
    gpu_.api.fail(call, 999);
    EXPECT_THROW(generate_alone(harness, 0, prompt(5, 1), 4), Error) << call;
    EXPECT_EQ(generate_alone(harness, 0, prompt(5, 1), 4), want) << call;
  }
}

TEST_F(CudaBackendTest, ALostGpuSaysSoAndIsStillGivenBack) {
  DecoderHarness harness(gpu_.backend(DType::kF32), llama_folder(), {});
  generate_alone(harness, 0, prompt(5, 1), 4);
  gpu_.api.fail("synchronize", cuda::kFakeLaunchFailure, 1, true);
  for (int i = 0; i < 2; ++i) {
    try {
      harness.step({{0, {1}}});
      FAIL() << "the step went on";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDevice);
      EXPECT_NE(std::string(error.what()).find("can't go on"), std::string::npos) << error.what();
    }
    EXPECT_TRUE(harness.backend().lost());
  }
}

}  // namespace
}  // namespace headrace
