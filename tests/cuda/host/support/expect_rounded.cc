#include "cuda/host/support/expect_rounded.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "backend/reference/reference_backend.h"
#include "cuda/emulation/short_sums.h"
#include "cuda/host/support/generate.h"
#include "cuda/host/support/gpu_under_test.h"

namespace headrace {

namespace {

constexpr int kSteps = 6;

/// Logits of the tokens that rows `of` like best; without rows, of its own.
Rows follow(std::shared_ptr<Backend> backend, const std::string& folder,
            const HarnessOptions& options, const Rows& of, size_t* bytes = nullptr) {
  DecoderHarness harness(std::move(backend), folder, options);
  if (bytes != nullptr) *bytes = harness.decoder().weight_bytes();
  harness.start(0, 40);
  Rows out = {harness.step({{0, prompt(40, 3)}}).back()};
  while (static_cast<int>(out.size()) < kSteps) {
    const auto& row = of.empty() ? out.back() : of[out.size() - 1];
    out.push_back(harness.step({{0, {argmax(row)}}}).front());
  }
  return out;
}

double rms(const Rows& a, const Rows& b) {
  double squares = 0.0, count = 0.0;
  for (size_t step = 0; step < a.size(); ++step) {
    for (size_t i = 0; i < a[step].size(); ++i, ++count) {
      squares += std::pow(double{a[step][i]} - double{b[step][i]}, 2);
    }
  }
  return std::sqrt(squares / count);
}

}  // namespace

std::shared_ptr<Backend> make_rounding_reference(const Backend& gpu) {
  const bool short_sums = gpu.device_info().isa == "sm_90";
  return make_reference_backend(0, Activations::kWhole, true,
                                short_sums ? &emulation::sum_short : nullptr);
}

void expect_rounded(const std::string& folder, const HarnessOptions& options,
                    const std::string& plain, bool stored) {
  size_t bytes = 0;
  const auto gpu = make_gpu_under_test(DType::kF32);
  const Rows want = follow(make_rounding_reference(*gpu), folder, options, {});
  const Rows got = follow(gpu, folder, options, want, &bytes);
  // The reference reads a checkpoint's codes as numbers where it isn't told to multiply codes.
  const Rows numbers =
      stored ? follow(make_reference_backend(0, Activations::kWhole), folder, options, want)
             : follow(make_reference_backend(), plain, {}, want);
  EXPECT_GT(rms(numbers, want), 0.0);
  EXPECT_LT(rms(got, want), 0.3 * rms(numbers, want));
  DecoderHarness whole(make_gpu_under_test(DType::kF32), plain, {});
  EXPECT_LT(bytes, whole.decoder().weight_bytes());
}

}  // namespace headrace
