#include <gtest/gtest.h>

#include <ios>
#include <sstream>
#include <string>

#include "backend/cuda_interface.h"
#include "backend/cuda_plugin.h"
#include "headrace/status.h"

namespace headrace {
namespace {

std::string refusal(const std::string& path) {
  try {
    load_cuda_plugin(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    return error.what();
  }
  return "";
}

TEST(PluginLoading, OneOfOtherHeadersIsRefusedWithBothHashes) {
  const std::string why = refusal(HEADRACE_FOREIGN_PLUGIN);
  std::ostringstream own;
  own << std::hex << kCudaInterface;
  EXPECT_NE(why.find("(interface abc)"), std::string::npos) << why;
  EXPECT_NE(why.find("(interface " + own.str() + "): install both from one build"),
            std::string::npos)
      << why;
}

TEST(PluginLoading, WhatIsMissingOrNoLibraryIsNamed) {
  EXPECT_NE(refusal("/nowhere/x.so").find("/nowhere/x.so is not there"), std::string::npos);
  EXPECT_NE(refusal("/proc/self/status").find("can't be loaded"), std::string::npos);
}

}  // namespace
}  // namespace headrace
