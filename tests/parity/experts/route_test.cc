// route() on every kernel set of the CPU, and the memory it keeps.

#include <set>

#include "headrace/status.h"
#include "parity/experts/route_harness.h"

namespace headrace::parity {
namespace {

std::string isa_name(const testing::TestParamInfo<std::string>& info) { return info.param; }

class RouteParity : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() != "reference") HEADRACE_REQUIRE_ISA(GetParam());
    backend_ = make_backend(GetParam());
  }
  std::unique_ptr<Backend> backend_;
};

#include "parity/experts/route_cases.inc"

INSTANTIATE_TEST_SUITE_P(Isas, RouteParity,
                         testing::Values("baseline", "avx2", "avx512", "avx512_bf16", "reference"),
                         isa_name);

TEST(Route, ReservedMemoryIsEnough) {
  const auto backend = make_cpu_backend({.num_threads = 2});
  Random random(93);
  const RouterSpec spec{.num_experts = 96, .top_k = 4};
  const std::vector<float> gate = random.uniforms(96 * 64);
  const auto weight =
      backend->pack_weight({{{gate.data(), DType::kF32, 96, 64, false, 64}}, DType::kF32});
  constexpr int64_t kRows = 200;
  const Matrix x(*backend, kRows, 64, random.uniforms(kRows * 64)), out(*backend, kRows, 4);
  const Backend::Buffer ids = backend->allocate(size_t(kRows) * 4 * sizeof(int32_t));
  const auto run = [&](int64_t rows) {
    backend->route(x.view().first_rows(rows), *weight, {}, {}, spec,
                   TensorView(ids.data, DType::kI32, {rows, 4}), out.view().first_rows(rows));
  };
  const size_t before = backend->bytes_in_use();
  backend->reserve([&] { run(kRows); });
  const size_t reserved = backend->bytes_in_use();
  EXPECT_GT(reserved, before);
  for (const int64_t rows : {1, 17, 200}) run(rows);
  EXPECT_EQ(backend->bytes_in_use(), reserved);
}

}  // namespace
}  // namespace headrace::parity
