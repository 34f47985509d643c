// What a packed file's header keeps of the formats of weights that came quantized.

#include "model/packed/packed_header.h"

#include <gtest/gtest.h>

#include <string>

#include "cpp/model/expect_error.h"
#include "model/checkpoint/safetensors.h"

namespace headrace {
namespace {

const QuantFormat kRounded{.bits = 4, .group_size = 64, .zero_points = true};
const QuantFormat kWhole{.bits = 8, .group_size = 32, .activations = Activations::kWhole};

std::string header_text() {
  PackedHeader header;
  header.config = "{}";
  header.tensors = {{.name = "a", .bytes = kPackedAlignment, .quant = kRounded},
                    {.name = "b", .bytes = kPackedAlignment, .quant = kWhole},
                    {.name = "c", .bytes = kPackedAlignment, .quant = kFloat4Format}};
  return format_packed_header(header).substr(kSafetensorsLengthBytes);
}

PackedHeader parse(const std::string& text) {
  return parse_packed_header(text, 3 * kPackedAlignment, "a file");
}

// The default is not written, so that files from before there was another stay as they are.
TEST(PackedHeader, KeepsFormatsAndTheirActivations) {
  const std::string text = header_text();
  EXPECT_NE(text.find(R"(\"a\":[4,64,true,false,false])"), text.npos) << text;
  EXPECT_NE(text.find(R"(\"b\":[8,32,false,false,false,true])"), text.npos) << text;
  const PackedHeader header = parse(text);
  EXPECT_NE(text.find(R"(\"c\":[4,32,false,false,false,true,true])"), text.npos) << text;
  ASSERT_EQ(header.tensors.size(), 3u);
  EXPECT_EQ(header.tensors[0].quant, kRounded);
  EXPECT_EQ(header.tensors[1].quant, kWhole);
  EXPECT_EQ(header.tensors[2].quant, kFloat4Format);
}

TEST(PackedHeader, AFormatThatCannotBeIsRefused) {
  const std::string text = header_text(), good = "false,false,true]";
  for (const char* bad : {"false,false,1]", "false]", "false,false,true,true]", "7]"}) {
    std::string changed = text;
    changed.replace(text.find(good), good.size(), bad);
    expect_error(ErrorCode::kCorruptFile, {"formats", "b"}, [&] { parse(changed); });
  }
}

}  // namespace
}  // namespace headrace
