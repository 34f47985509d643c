#include "cuda/host/support/expect_rounded.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "backend/reference/reference_backend.h"
#include "cuda/host/support/generate.h"
#include "cuda/host/support/gpu_under_test.h"

namespace headrace {

namespace {

constexpr int kSteps = 6;

Rows generate(std::shared_ptr<Backend> backend, const std::string& folder,
              const HarnessOptions& options, size_t* bytes = nullptr) {
  DecoderHarness harness(std::move(backend), folder, options);
  if (bytes != nullptr) *bytes = harness.decoder().weight_bytes();
  return generate_alone(harness, 0, prompt(40, 3), kSteps);
}

/// Logits of the same sequence that gave `of`.
Rows follow(std::shared_ptr<Backend> backend, const std::string& folder,
            const HarnessOptions& options, const Rows& of) {
  DecoderHarness harness(std::move(backend), folder, options);
  harness.start(0, 40);
  Rows out = {harness.step({{0, prompt(40, 3)}}).back()};
  while (out.size() < of.size()) {
    out.push_back(harness.step({{0, {argmax(of[out.size() - 1])}}}).front());
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

std::shared_ptr<Backend> make_rounding_reference() {
  return make_reference_backend(0, Activations::kWhole, true);
}

void expect_rounded(const std::string& folder, const HarnessOptions& options,
                    const std::string& plain, bool stored) {
  size_t bytes = 0;
  const Rows want = generate(make_rounding_reference(), folder, options);
  const Rows got = generate(make_gpu_under_test(DType::kF32), folder, options, &bytes);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(argmax(got[i]), argmax(want[i])) << i;
  // The reference reads a checkpoint's codes as numbers where it isn't told to multiply codes.
  const Rows numbers =
      stored ? follow(make_reference_backend(0, Activations::kWhole), folder, options, want)
             : follow(make_reference_backend(), plain, {}, want);
  EXPECT_GT(rms(numbers, want), 0.0);
  EXPECT_LT(rms(got, want), 0.3 * rms(numbers, want));
  size_t whole = 0;
  generate(make_gpu_under_test(DType::kF32), plain, {}, &whole);
  EXPECT_LT(bytes, whole);
}

}  // namespace headrace
