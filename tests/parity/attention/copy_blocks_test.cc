// Copies between a cache's blocks and its host blocks, against a plain model.

#include <algorithm>
#include <cstring>
#include <random>

#include "backend/host/array_kv_cache.h"
#include "headrace/status.h"
#include "parity/parity.h"
#include "parity/ranks/ranks.h"

namespace headrace::parity {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int32_t kLayers = 3, kBlocks = 5, kHostBlocks = 4;

struct Case {
  const char* isa;
  DType dtype;
  int32_t threads;
  bool two_nodes = false;
};

class CopyBlocks : public ::testing::TestWithParam<Case> {
 protected:
  CopyBlocks() {
    CpuBackendOptions options{.num_threads = GetParam().threads, .isa = GetParam().isa};
    if (GetParam().two_nodes) {
      options.numa = true;
      options.numa_nodes = ranks_of(2);  // "" with one core: then there is one node
    }
    backend_ = make_cpu_backend(options);
    cache_ = backend_->make_kv_cache(
        CacheLayout::uniform(kLayers, kv_rows(4, 48, GetParam().dtype), 32), kBlocks);
  }

  const ArrayKvCache& arrays() const { return dynamic_cast<const ArrayKvCache&>(*cache_); }
  size_t block_bytes() const { return backend_->kv_block_bytes(cache_->layout()); }
  Bytes read(int32_t block) const {
    Bytes out;
    for (int64_t array = 0; array < arrays().num_arrays(); ++array) {
      const std::span<std::byte> piece = arrays().piece(array, block);
      out.insert(out.end(), piece.begin(), piece.end());
    }
    return out;
  }
  void write(int32_t block, const Bytes& bytes) {
    const std::byte* from = bytes.data();
    for (int64_t array = 0; array < arrays().num_arrays(); ++array) {
      const std::span<std::byte> piece = arrays().piece(array, block);
      std::copy_n(from, piece.size(), piece.data());
      from += piece.size();
    }
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvCache> cache_;
};

TEST_P(CopyBlocks, EveryBitArrivesInOrder) {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    if (seed == 1) backend_->add_host_blocks(*cache_, kHostBlocks);
    std::vector<Bytes> blocks(kBlocks, Bytes(block_bytes())), host(kHostBlocks);
    for (int32_t i = 0; i < kBlocks; ++i) {
      Bytes& own = blocks[static_cast<size_t>(i)];
      std::ranges::generate(own, [&] { return static_cast<std::byte>(random()); });
      write(i, own);
    }
    std::vector<BlockCopy> copies;
    for (int32_t i = 0; i < kHostBlocks; ++i) copies.push_back({i, i, true});
    for (int i = 0; i < 30; ++i) {
      copies.push_back({static_cast<int32_t>(random() % kBlocks),
                        static_cast<int32_t>(random() % kHostBlocks), random() % 2 == 0});
    }
    const size_t half = random() % copies.size();
    backend_->copy_blocks(*cache_, std::span(copies).first(half));
    backend_->copy_blocks(*cache_, std::span(copies).subspan(half));
    for (const BlockCopy& copy : copies) {
      Bytes& own = blocks[static_cast<size_t>(copy.block)];
      Bytes& other = host[static_cast<size_t>(copy.host_block)];
      (copy.to_host ? other : own) = copy.to_host ? own : other;
    }
    for (int32_t i = 0; i < kBlocks; ++i) ASSERT_EQ(read(i), blocks[static_cast<size_t>(i)]);
  }
}

TEST_P(CopyBlocks, BlocksThatAreNotThereAreRefused) {
  const auto refused = [this](const BlockCopy& copy) {
    EXPECT_THROW(backend_->copy_blocks(*cache_, std::span(&copy, 1)), InternalError);
  };
  refused({0, 0, true});
  const size_t before = backend_->bytes_in_use();
  backend_->add_host_blocks(*cache_, kHostBlocks);
  EXPECT_GE(backend_->bytes_in_use(), before + kHostBlocks * block_bytes());
  for (const bool to_host : {false, true}) {
    refused({kBlocks, 0, to_host});
    refused({-1, 0, to_host});
    refused({0, kHostBlocks, to_host});
    refused({0, -1, to_host});
  }
  EXPECT_THROW(backend_->add_host_blocks(*cache_, 1), InternalError) << "a second time";
}

INSTANTIATE_TEST_SUITE_P(
    Formats, CopyBlocks,
    ::testing::Values(Case{"baseline", DType::kF32, 1}, Case{"baseline", DType::kBF16, 3},
                      Case{"baseline", DType::kI8, 2}, Case{"baseline", DType::kU4, 3},
                      Case{"baseline", DType::kF8E4M3, 2}, Case{"baseline", DType::kI8, 2, true},
                      Case{"reference", DType::kF16, 1}),
    [](const auto& param_info) {
      return std::string(param_info.param.isa) + "_" + dtype_name(param_info.param.dtype) +
             (param_info.param.two_nodes ? "_numa" : "");
    });

}  // namespace
}  // namespace headrace::parity
