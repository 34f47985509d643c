#include "base/env.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

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

TEST(Env, ACacheFolderIsAnAbsolutePath) {
  const auto restore = [](const char* name, const std::optional<std::string>& value) {
    value ? setenv(name, value->c_str(), 1) : unsetenv(name);
  };
  std::map<const char*, std::optional<std::string>> before;
  for (const char* name : {"HEADRACE_CACHE", "XDG_CACHE_HOME", "HOME"}) {
    const char* const value = getenv(name);
    before[name] = value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }
  setenv("HOME", "/home", 1);
  unsetenv("XDG_CACHE_HOME");
  setenv("HEADRACE_CACHE", "some/where", 1);
  try {
    env_cache_folder();
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(
        error.what(),
        "HEADRACE_CACHE is 'some/where', no absolute path: set it to the path of a folder, "
        "or unset it.");
  }
  setenv("HEADRACE_CACHE", "/some/where", 1);
  EXPECT_EQ(env_cache_folder(), "/some/where");
  unsetenv("HEADRACE_CACHE");
  setenv("XDG_CACHE_HOME", "caches", 1);
  EXPECT_EQ(env_cache_folder(), "/home/.cache/headrace");
  setenv("HOME", "home", 1);
  EXPECT_EQ(env_cache_folder(), std::nullopt);
  for (const auto& [name, value] : before) restore(name, value);
}

}  // namespace
}  // namespace headrace
