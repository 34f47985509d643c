#include "base/env.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "headrace/status.h"

namespace headrace {
namespace {

TEST(Env, CudaSwitchesTakeTheirTwoNames) {
  unsetenv("HEADRACE_CUDA_KERNELS");
  unsetenv("HEADRACE_CUDA_GRAPHS");
  unsetenv("HEADRACE_CUDA_PEERS");
  EXPECT_FALSE(env_cuda_plain_kernels());
  EXPECT_TRUE(env_cuda_graphs());
  EXPECT_TRUE(env_cuda_peers());
  setenv("HEADRACE_CUDA_KERNELS", "plain", 1);
  setenv("HEADRACE_CUDA_GRAPHS", "off", 1);
  setenv("HEADRACE_CUDA_PEERS", "off", 1);
  EXPECT_TRUE(env_cuda_plain_kernels());
  EXPECT_FALSE(env_cuda_graphs());
  EXPECT_FALSE(env_cuda_peers());
  setenv("HEADRACE_CUDA_KERNELS", "best", 1);
  EXPECT_FALSE(env_cuda_plain_kernels());
  setenv("HEADRACE_CUDA_KERNELS", "fast", 1);
  try {
    env_cuda_plain_kernels();
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(error.what(),
                 "HEADRACE_CUDA_KERNELS is 'fast': set it to best or plain, or unset it.");
  }
  unsetenv("HEADRACE_CUDA_KERNELS");
  unsetenv("HEADRACE_CUDA_GRAPHS");
  unsetenv("HEADRACE_CUDA_PEERS");
}

TEST(Env, ThreadSeatsAreOnOrOff) {
  unsetenv("HEADRACE_THREAD_SEATS");
  EXPECT_EQ(env_thread_seats(), std::nullopt);
  setenv("HEADRACE_THREAD_SEATS", "on", 1);
  EXPECT_EQ(env_thread_seats(), true);
  setenv("HEADRACE_THREAD_SEATS", "off", 1);
  EXPECT_EQ(env_thread_seats(), false);
  setenv("HEADRACE_THREAD_SEATS", "yes", 1);
  EXPECT_THROW(env_thread_seats(), Error);
  unsetenv("HEADRACE_THREAD_SEATS");
}

}  // namespace
}  // namespace headrace
