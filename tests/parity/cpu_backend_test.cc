// Choosing kernels, threads and limits.

#include <cstdlib>

#include "headrace/status.h"
#include "parity/parity.h"

namespace headrace::parity {
namespace {

/// Sets an environment variable while in scope.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) {
    const char* old = std::getenv(name);
    if (old != nullptr) old_ = old;
    had_ = old != nullptr;
    ::setenv(name, value, 1);
  }
  ~ScopedEnv() {
    if (had_) {
      ::setenv(name_, old_.c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

TEST(CpuIsa, BaselineAndReferenceAreEverywhere) {
  EXPECT_TRUE(isa_available("baseline"));
  EXPECT_TRUE(isa_available("reference"));
}

TEST(CpuIsa, TheBestIsTheDefault) {
  ::unsetenv("HEADRACE_CPU_ISA");
  EXPECT_EQ(make_cpu_backend()->device_info().isa, available_cpu_isas().front());
}

TEST(CpuIsa, OptionsAndEnvironmentForceOne) {
  for (const std::string& isa : available_cpu_isas()) {
    EXPECT_EQ(make_cpu_backend({.isa = isa})->device_info().isa, isa);
    const ScopedEnv env("HEADRACE_CPU_ISA", isa.c_str());
    EXPECT_EQ(make_cpu_backend()->device_info().isa, isa);
    EXPECT_EQ(make_cpu_backend({.isa = "baseline"})->device_info().isa, "baseline");
  }
}

void expect_unsupported(const CpuBackendOptions& options, const std::string& named) {
  try {
    make_cpu_backend(options);
    FAIL() << "did not throw";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
    const std::string message = e.what();
    EXPECT_NE(message.find("'" + named + "'"), std::string::npos) << message;
    for (const std::string& isa : available_cpu_isas()) {
      EXPECT_NE(message.find(isa), std::string::npos) << message;
    }
  }
}

TEST(CpuIsa, AnUnknownOneIsAnErrorThatNamesTheOthers) {
  expect_unsupported({.isa = "sse9"}, "sse9");
  const ScopedEnv env("HEADRACE_CPU_ISA", "AVX2");
  expect_unsupported({}, "AVX2");
}

TEST(CpuIsa, AnUnavailableOneIsAnErrorThatNamesTheOthers) {
  for (const std::string& isa : kernel_isas()) {
    if (isa_available(isa)) continue;
    expect_unsupported({.isa = isa}, isa);
    return;
  }
  GTEST_SKIP() << "this machine has every ISA";
}

TEST(CpuThreads, OptionsThenEnvironment) {
  const ScopedEnv env("HEADRACE_NUM_THREADS", "3");
  EXPECT_EQ(make_cpu_backend({.isa = "baseline"})->device_info().num_threads, 3);
  EXPECT_EQ(make_cpu_backend({.num_threads = 2, .isa = "baseline"})->device_info().num_threads, 2);
  EXPECT_THROW(make_cpu_backend({.num_threads = -1}), Error);
}

TEST(CpuBackend, NamesWhatItCannotRun) {
  for (const std::string& isa : available_cpu_isas()) {
    const auto backend = make_backend(isa);
    const BackendNeeds good{DType::kBF16, DType::kF16, 128, 64};
    EXPECT_NO_THROW(backend->require(good));
    BackendNeeds bad = good;
    bad.head_dim = 72;
    EXPECT_THROW(backend->require(bad), Error);
    bad = good;
    bad.head_dim = 528;
    EXPECT_THROW(backend->require(bad), Error);
    bad = good;
    bad.storage = DType::kI8;
    EXPECT_THROW(backend->require(bad), Error);
    bad = good;
    bad.block_size = 24;
    EXPECT_THROW(backend->require(bad), Error);
    bad = good;
    bad.experts = kMaxExperts;
    EXPECT_NO_THROW(backend->require(bad));
    ++bad.experts;
    EXPECT_THROW(backend->require(bad), Error);
  }
}

TEST(CpuBackend, BuffersAreAlignedAndHugeOnesRefused) {
  const auto backend = make_cpu_backend();
  for (const size_t bytes : {size_t{1}, size_t{300}, size_t{5} << 20}) {
    const auto buffer = backend->allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data) % 256, 0u);
    EXPECT_EQ(buffer.bytes, bytes);
  }
  EXPECT_THROW(backend->allocate(~size_t{0}), Error);
  EXPECT_THROW(backend->allocate(size_t{1} << 60), Error);
  EXPECT_EQ(backend->bytes_in_use(), 0u);
}

TEST(CpuBackend, ReportsItsMachine) {
  const DeviceInfo info = make_cpu_backend()->device_info();
  EXPECT_EQ(info.name, "cpu");
  EXPECT_GT(info.free_bytes, 0u);
  EXPECT_GE(info.total_bytes, info.free_bytes);
  EXPECT_NE(info.description.find(info.isa), std::string::npos);
}

}  // namespace
}  // namespace headrace::parity
