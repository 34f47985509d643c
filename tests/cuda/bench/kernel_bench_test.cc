// The benchmark of the kernels, run once in the emulation at toy sizes: what it measures means
// nothing there, but it is all of it but gpu_device.cc.

#include "benchmarks/cuda/kernels/kernel_bench.h"

#include <cstdlib>

#include "benchmarks/cuda/kernels/cublaslt.h"
#include "emulated_device.h"
#include "rows_file.h"

namespace headrace::bench {
namespace {

KernelBenchOptions toy(const std::string& cublaslt) {
  return {.shape = model_shape("toy"),
          .read_bytes = size_t{1} << 14,
          .cold_bytes = 1,
          .few_rows = {1, 3, 33},
          .some_rows = {35},
          .many_rows = 40,
          .plan_rows = {70},
          .quant_rows = 5,
          .quant_row_counts = {5, 70},
          .prefill_tokens = 70,
          .decode_sequences = 2,
          .decode_context = 600,
          .tower = tower_shape("toy"),
          .tower_rows = 70,
          .matrix_size = 64,
          .sample_rows = 2,
          .sample_vocab = 1000,
          .rounds = 1,
          .least_turns = 2,
          .cublaslt = cublaslt};
}

TEST(KernelBench, MeasuresEveryNumber) {
  const auto device = make_emulated_device();
  const RowsFile file;
  Report report(file.path());
  KernelBenchOptions options = toy(HEADRACE_FAKE_CUBLASLT);
  options.many_rows = 130;  // enough for wgmma
  EXPECT_EQ(bench_kernels(*device, options, report), 0);
  const auto rows = file.read();
  for (const char* number : {"read-bandwidth",
                             "matrix-rate",
                             "linear-few",
                             "linear-some",
                             "linear-many",
                             "linear-plan-o-70-chosen",
                             "linear-plan-o-70-128x128-wgmma-1x1",
                             "linear-qkv-1",
                             "linear-down-130",
                             "linear-head-33",
                             "attention-prefill",
                             "attention-prefill-many",
                             "attention-decode",
                             "sampling",
                             "attention-decode-fp8",
                             "attention-decode-int8",
                             "attention-decode-uint4",
                             "segments-whole",
                             "segments-windows",
                             "sampling-flat",
                             "sampling-1",
                             "sampling-top-p-flat",
                             "sampling-temperature-1",
                             "sampling-greedy",
                             "sampling-logprobs",
                             "add-rms-norm",
                             "rope-kv-write",
                             "linear-int4",
                             "linear-int4-gate_up-5",
                             "int4-by-32-o-70-mma",
                             "int8-gate_up-5-bf16",
                             "linear-fp8",
                             "linear-fp8-down-130"}) {
    ASSERT_TRUE(rows.contains(number)) << number;
    expect_measured(rows.at(number));
  }
  EXPECT_EQ(rows.at("linear-few").at("limit_name"), "cuBLASLt 13.1.2");
  EXPECT_FALSE(rows.contains("linear-head-130"));
}

TEST(Race, ProfilesTheFirstOnceMore) {
  const auto device = make_emulated_device();
  int launches[2] = {0, 0};
  const auto count = [&launches](size_t i) -> Contestant {
    return {[=, &launches](int) { ++launches[i]; }};
  };
  race(*device, {count(0), count(1)}, {.turns = 3, .rounds = 1, .profile = true});
  EXPECT_EQ(launches[1], 1 + 3 * 2);
  EXPECT_EQ(launches[0], launches[1] + 3);
}

TEST(KernelBench, SaysThatThereIsNoPeer) {
  const auto device = make_emulated_device();
  const RowsFile file;
  Report report(file.path());
  KernelBenchOptions options = toy("/nowhere/libcublasLt.so");
  options.part = "linears";
  EXPECT_EQ(bench_kernels(*device, options, report), 0);
  const auto rows = file.read();
  EXPECT_NE(rows.at("linear-few").at("missing").get<std::string>().find("/nowhere"),
            std::string::npos);
  EXPECT_EQ(rows.at("linear-qkv-1").at("limit"), 0);
  EXPECT_GT(rows.at("linear-qkv-1").at("measured"), 0);
}

TEST(KernelBench, RunsOnePart) {
  const auto device = make_emulated_device();
  const RowsFile file;
  Report report(file.path());
  KernelBenchOptions options = toy(HEADRACE_FAKE_CUBLASLT);
  options.part = "rows";
  EXPECT_EQ(bench_kernels(*device, options, report), 0);
  EXPECT_TRUE(file.read().contains("add-rms-norm"));
  EXPECT_FALSE(file.read().contains("sampling"));
  options.part = "row";
  EXPECT_THROW(bench_kernels(*device, options, report), std::invalid_argument);
}

TEST(KernelBench, OnePartsFailureCostsNoOtherRow) {
  const auto device = make_emulated_device();
  const RowsFile file;
  Report report(file.path());
  KernelBenchOptions options = toy(HEADRACE_FAKE_CUBLASLT);
  options.shape.head_dim = 50;  // which no weight is padded to
  EXPECT_GE(bench_kernels(*device, options, report), 1);
  const auto rows = file.read();
  EXPECT_TRUE(rows.at("linears").contains("missing"));
  expect_measured(rows.at("sampling"));
}

class PeerThat {
 public:
  explicit PeerThat(const char* part) { setenv("FAKE_CUBLASLT", part, 1); }
  ~PeerThat() { unsetenv("FAKE_CUBLASLT"); }
};

TEST(KernelBench, FailsWhereThePeerSaysSomethingElse) {
  const auto device = make_emulated_device();
  const RowsFile file;
  Report report(file.path());
  const PeerThat is("wrong");
  Yardsticks held{.read = ReadLimit(*device, 1 << 14)};
  held.peer.emplace(HEADRACE_FAKE_CUBLASLT);
  EXPECT_THROW(bench_linears(*device, toy(HEADRACE_FAKE_CUBLASLT), held, report),
               std::runtime_error);
  const auto rows = file.read();
  EXPECT_NE(rows.at("linear-o-3").at("missing").get<std::string>().find("and cuBLASLt's"),
            std::string::npos);
  EXPECT_TRUE(rows.at("linear-many").contains("missing"));
}

TEST(CublasLt, SaysWhyItCannotBeUsed) {
  const PeerThat is("absent");
  EXPECT_THROW(CublasLt(HEADRACE_FAKE_CUBLASLT), std::runtime_error);
  EXPECT_THROW(CublasLt("/nowhere/libcublasLt.so"), std::runtime_error);
}

TEST(ReadLimit, ReadsEveryByteOnce) {
  const auto device = make_emulated_device();
  for (const size_t bytes : {size_t{16}, size_t{1} << 14, (size_t{1} << 17) + 48}) {
    ReadLimit limit(*device, bytes);
    uint32_t all = 0;
    for (size_t i = 0; i < bytes / sizeof(uint32_t); ++i) all ^= limit.data()[i];
    EXPECT_EQ(limit.checksum(), all) << bytes;
  }
}

TEST(Race, TakesTurnsAndPreparesBeforeEveryTimedRun) {
  const auto device = make_emulated_device();
  std::string calls;
  const auto seconds =
      race(*device,
           {{[&](int turn) { calls += static_cast<char>('a' + turn); }},
            {[&](int turn) { calls += static_cast<char>('A' + turn); }, [&] { calls += '.'; }}},
           {.turns = 2, .rounds = 2});
  EXPECT_EQ(calls,
            "a.A"
            "ab.AB"
            "ab.AB"
            "ab.AB");
  EXPECT_EQ(seconds.size(), 2u);
}

}  // namespace
}  // namespace headrace::bench
