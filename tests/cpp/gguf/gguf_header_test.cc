// Good headers, and headers that break the format.

#include "gguf/gguf_header.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "cpp/gguf/gguf_writer.h"
#include "cpp/model/expect_error.h"

namespace headrace {
namespace {

using test::gguf_bytes;
using test::gguf_text;

std::string key(const std::string& name, GgufType type, const std::string& value) {
  return gguf_text(name) + gguf_bytes(type) + value;
}
std::string array(GgufType element, uint64_t count, const std::string& elements) {
  return gguf_bytes(element) + gguf_bytes(count) + elements;
}

std::string tensor(const std::string& name, const std::vector<uint64_t>& dims, uint64_t offset,
                   BlockType type = BlockType::kF32) {
  std::string out = gguf_text(name) + gguf_bytes(static_cast<uint32_t>(dims.size()));
  for (const uint64_t dim : dims) out += gguf_bytes(dim);
  return out + gguf_bytes(type) + gguf_bytes(offset);
}

struct File {
  uint32_t version = 3;
  std::vector<std::string> keys, tensors;
  size_t data = 0;  ///< bytes behind the padding
  size_t alignment = 32;

  std::string bytes() const {
    std::string out = "GGUF" + gguf_bytes(version) + gguf_bytes(uint64_t{tensors.size()}) +
                      gguf_bytes(uint64_t{keys.size()});
    for (const std::string& part : keys) out += part;
    for (const std::string& part : tensors) out += part;
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + std::string(data, '\0');
  }
};

void refused(const std::string& bytes, std::initializer_list<std::string> parts,
             ErrorCode code = ErrorCode::kCorruptFile) {
  expect_error(code, parts, [&] { parse_gguf(bytes, "m.gguf"); });
}

TEST(GgufHeader, ReadsValuesOfAllTypes) {
  using enum GgufType;
  for (const uint32_t version : {2u, 3u}) {
    const File file{
        .version = version,
        .keys = {
            key("u8", kU8, gguf_bytes(uint8_t{200})), key("i8", kI8, gguf_bytes(int8_t{-3})),
            key("u16", kU16, gguf_bytes(uint16_t{60000})),
            key("i16", kI16, gguf_bytes(int16_t{-300})),
            key("u32", kU32, gguf_bytes(uint32_t{4000000000})),
            key("i32", kI32, gguf_bytes(int32_t{-7})), key("f32", kF32, gguf_bytes(0.5f)),
            key("bool", kBool, gguf_bytes(uint8_t{1})), key("string", kString, gguf_text("words")),
            key("u64", kU64, gguf_bytes(~uint64_t{0})), key("i64", kI64, gguf_bytes(int64_t{-9})),
            key("f64", kF64, gguf_bytes(0.1)),
            key("ints", kArray, array(kI16, 2, gguf_bytes(int16_t{-1}) + gguf_bytes(int16_t{2}))),
            key("texts", kArray, array(kString, 2, gguf_text("") + gguf_text("b")))}};
    const std::string bytes = file.bytes();
    const GgufHeader header = parse_gguf(bytes, "m.gguf");
    EXPECT_EQ(header.integer("u8", 0), 200);
    EXPECT_EQ(header.integer("i8", 0), -3);
    EXPECT_EQ(header.integer("u16", 0), 60000);
    EXPECT_EQ(header.integer("i16", 0), -300);
    EXPECT_EQ(header.integer("u32", 0), 4000000000);
    EXPECT_EQ(header.integer("i32", 0), -7);
    EXPECT_EQ(header.number("f32", 0), 0.5);
    EXPECT_TRUE(header.boolean("bool", false));
    EXPECT_EQ(header.text("string", ""), "words");
    EXPECT_EQ(header.integer("i64", 0), -9);
    EXPECT_EQ(header.number("f64", 0), 0.1);
    EXPECT_EQ(header.number("i8", 0), -3);
    EXPECT_EQ(header.find("ints")->integers(), (std::vector<int64_t>{-1, 2}));
    EXPECT_EQ(header.find("texts")->texts(), (std::vector<std::string_view>{"", "b"}));
    EXPECT_EQ(header.integer("absent", 5), 5);
    for (const char* bad : {"u64", "f32", "ints", "string"}) {
      expect_error(ErrorCode::kCorruptFile, {"m.gguf", bad}, [&] { header.integer(bad, 0); });
    }
  }
}

TEST(GgufHeader, PlacesTensors) {
  const File file{
      .keys = {key("general.alignment", GgufType::kU32, gguf_bytes(uint32_t{64}))},
      .tensors = {tensor("a", {3, 5}, 0), tensor("b", {256, 2, 3}, 64, BlockType::kQ4_K)},
      .data = 64 + 6 * 144,
      .alignment = 64};
  const std::string bytes = file.bytes();
  const GgufHeader header = parse_gguf(bytes, "m.gguf");
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].shape, (std::vector<int64_t>{5, 3}));
  EXPECT_EQ(header.tensors[0].bytes, 60u);
  EXPECT_EQ(header.tensors[1].shape, (std::vector<int64_t>{3, 2, 256}));
  EXPECT_EQ(header.tensors[1].begin, bytes.size() - 6 * 144);
  EXPECT_EQ(header.tensors[1].bytes, 6u * 144);
  for (size_t size = 4; size < bytes.size(); ++size) refused(bytes.substr(0, size), {"m.gguf"});
}

TEST(GgufHeader, OtherVersionsAreRefusedByName) {
  refused("GGML" + std::string(40, '\0'), {"GGUF"});
  refused(File{.version = 1}.bytes(), {"version 1", "convert"}, ErrorCode::kUnsupported);
  refused(File{.version = 4}.bytes(), {"version 4"}, ErrorCode::kUnsupported);
  refused(File{.version = 0x03000000}.bytes(), {"big-endian"}, ErrorCode::kUnsupported);
}

TEST(GgufHeader, HostileKeysAreRefused) {
  using enum GgufType;
  const auto bad = [](std::vector<std::string> keys, std::initializer_list<std::string> parts) {
    refused(File{.keys = std::move(keys), .data = 64}.bytes(), parts);
  };
  const uint64_t huge = uint64_t{1} << 63;
  refused("GGUF" + gguf_bytes(3u) + gguf_bytes(huge) + gguf_bytes(uint64_t{0}),
          {"9223372036854775808 tensors"});
  refused("GGUF" + gguf_bytes(3u) + gguf_bytes(uint64_t{0}) + gguf_bytes(huge),
          {"9223372036854775808 keys"});
  bad({gguf_bytes(huge)}, {"a key has 9223372036854775808 bytes"});
  bad({key("k", kString, gguf_bytes(uint64_t{1000}))}, {"\"k\"", "1000 bytes"});
  bad({key("k", kU8, "\1"), key("k", kU8, "\1")}, {"\"k\" twice"});
  bad({key("", kU8, "\1")}, {"without a name"});
  bad({key("k", GgufType{13}, "\1")}, {"\"k\"", "unknown type 13"});
  bad({key("k", kBool, "\2")}, {"\"k\"", "holds 2"});
  bad({key("k", kArray, array(kArray, 1, array(kU8, 1, "\1")))}, {"arrays of arrays"});
  bad({key("k", kArray, array(kU64, huge, ""))}, {"\"k\"", "9223372036854775808 elements"});
  bad({key("k", kArray, array(kU8, 1u << 30, ""))}, {"\"k\"", "1073741824 bytes"});
  bad({key("k", kArray, array(kString, 1u << 30, ""))}, {"\"k\""});
  for (const uint32_t alignment : {0u, 3u, 1u << 31}) {
    bad({key("general.alignment", kU32, gguf_bytes(alignment))}, {"alignment", "power of two"});
  }
}

TEST(GgufHeader, HostileTensorsAreRefused) {
  const auto bad = [](std::vector<std::string> tensors, std::initializer_list<std::string> parts) {
    refused(File{.tensors = std::move(tensors), .data = 128}.bytes(), parts);
  };
  const uint64_t huge = uint64_t{1} << 62;
  bad({tensor("a", {1, 1, 1, 1, 1}, 0)}, {"\"a\"", "5 dimensions"});
  bad({tensor("a", {4, 0}, 0)}, {"\"a\"", "dimension 0"});
  bad({tensor("a", {~uint64_t{0}}, 0)}, {"\"a\"", "impossible dimension"});
  bad({tensor("a", {huge, 8}, 0)}, {"\"a\"", "overflows"});
  bad({tensor("a", {huge}, 0)}, {"\"a\"", "overflows"});
  bad({tensor("a", {33}, 0, BlockType::kQ8_0)}, {"rows of 33", "Q8_0", "32"});
  bad({tensor("a", {64}, 0)}, {"\"a\"", "256 bytes", "cut off"});
  bad({tensor("a", {8}, 0), tensor("a", {8}, 32)}, {"\"a\" twice"});
  bad({tensor("a", {16}, 0), tensor("b", {8}, 32)}, {"\"b\"", "begins at 32"});
  bad({tensor("a", {8}, 32), tensor("b", {8}, 0)}, {"\"a\"", "begins at 32"});
  bad({tensor("a", {8}, 0), tensor("b", {8}, ~uint64_t{31})}, {"\"b\"", "begins at"});
  bad({tensor(std::string(128, 'n'), {8}, 0)}, {"128 bytes; at most 127"});
  refused(File{.tensors = {tensor("a", {256}, 0, BlockType{19})}, .data = 64}.bytes(),
          {"m.gguf", "\"a\"", "IQ1_S"}, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace headrace
