// The real plug-in on the machine as it is: with a GPU it is usable, without one it says why not,
// and everything else goes on.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "backend/cuda_plugin.h"
#include "headrace/engine.h"
#include "headrace/status.h"

namespace headrace {
namespace {

bool has_driver() {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
  if (driver != nullptr) dlclose(driver);
  return driver != nullptr;
}

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
    return error.what();
  }
  return "";
}

TEST(Plugin, LiesBesideThisProgramAndLoads) {
  const CudaPlugin& plugin = load_cuda_plugin(cuda_plugin_path());
  EXPECT_STREQ(plugin.version, HEADRACE_VERSION);
}

TEST(Plugin, WithoutADriverSaysSo) {
  if (has_driver()) GTEST_SKIP() << "this machine has an NVIDIA driver";
  const CudaPlugin& plugin = load_cuda_plugin(cuda_plugin_path());
  const std::string why = refusal([&] { plugin.require_device(0); });
  EXPECT_NE(why.find("no NVIDIA driver"), std::string::npos) << why;
  EXPECT_EQ(refusal([&] { plugin.make_backend({}); }), why);
}

TEST(Plugin, WithoutADriverDeviceCudaIsRefusedAndAutoIsTheCpu) {
  if (has_driver()) GTEST_SKIP() << "this machine has an NVIDIA driver";
  Engine engine;
  const std::string why =
      refusal([&] { engine.install_model("m", {.path = HEADRACE_TINY_MODEL, .device = "cuda"}); });
  EXPECT_NE(why.find("no NVIDIA driver"), std::string::npos) << why;
  engine.install_model("m", {.path = HEADRACE_TINY_MODEL, .num_kv_blocks = 4});
  EXPECT_EQ(engine.model_info("m").device, "cpu");
}

}  // namespace
}  // namespace headrace
