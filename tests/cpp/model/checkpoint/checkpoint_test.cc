// Every rule of the safetensors format that a hostile or damaged file can break, one case each.

#include "model/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "cpp/model/checkpoint_files.h"
#include "cpp/model/expect_error.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

/// A header of one entry "w" with these fields.
std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

struct BadFile {
  const char* what;  // for the test's name
  std::string bytes;
  ErrorCode code;
  std::string message;
};

std::vector<BadFile> bad_files() {
  const std::string good = entry("F32", "[2]", "[0,8]");
  const std::string data(8, 'x');
  const auto corrupt = [](const char* what, std::string header, std::string body,
                          std::string message) {
    return BadFile{what, safetensors_bytes(header, body), ErrorCode::kCorruptFile, message};
  };
  std::string huge_length = safetensors_bytes(good, data);
  const uint64_t over_cap = 100'000'001;
  std::memcpy(huge_length.data(), &over_cap, sizeof over_cap);
  std::string all_ones = safetensors_bytes(good, data);
  all_ones.replace(0, 8, 8, '\xff');
  const std::string deep = R"({"w":)" + std::string(5000, '[') + std::string(5000, ']') + "}";
  return {
      {"Empty", "", ErrorCode::kCorruptFile, "too short"},
      {"SevenBytes", "1234567", ErrorCode::kCorruptFile, "too short"},
      {"HeaderOverCap", huge_length, ErrorCode::kCorruptFile, "100000001"},
      {"HeaderLengthAllOnes", all_ones, ErrorCode::kCorruptFile, "claims a header"},
      {"HeaderCutShort", safetensors_bytes(good, data).substr(0, 20), ErrorCode::kCorruptFile,
       "cut short"},
      corrupt("NotJson", "{\"w\":", data, "not valid JSON at byte"),
      corrupt("EmptyHeader", "", "", "does not begin with '{'"),
      corrupt("LeadingSpace", " " + good, data, "does not begin with '{'"),
      corrupt("Array", "[]", "", "does not begin with '{'"),
      corrupt("SomethingBehind", good + "{}", data, "not valid JSON"),
      corrupt("Comment", "{/* */}", "", "not valid JSON"),
      corrupt("NotUtf8", "{\"\xff\xfe\":1}", "", "not valid JSON"),
      corrupt("NumberOutOfRange", entry("F32", "[1e999]", "[0,8]"), data, "out of range"),
      corrupt("TooDeep", deep, "", "nests deeper"),
      corrupt("DuplicateName",
              R"({"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
              R"("w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
              data, "\"w\" twice"),
      corrupt("DuplicateField", R"({"w":{"dtype":"U8","dtype":"U8","shape":[8]}})", data,
              "\"dtype\" twice"),
      corrupt("EntryNotObject", R"({"w":[1,2]})", data, "\"w\" is not an object"),
      corrupt("EntryTooSmall", R"({"w":{"dtype":"U8","shape":[8]}})", data, "is not an object of"),
      corrupt("EntryTooLarge", R"({"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"extra":1}})",
              data, "is not an object of"),
      corrupt("NoShape", R"({"w":{"dtype":"U8","sape":[8],"data_offsets":[0,8]}})", data,
              "has no shape"),
      corrupt("MetadataNotStrings", R"({"__metadata__":{"a":1}})", "", "__metadata__"),
      corrupt("MetadataNotObject", R"({"__metadata__":"pt"})", "", "__metadata__"),
      corrupt("UnknownDtype", entry("F31", "[2]", "[0,8]"), data, "unknown dtype \"F31\""),
      corrupt("DtypeNumber", R"({"w":{"dtype":7,"shape":[8],"data_offsets":[0,8]}})", data,
              "dtype that is no string"),
      {"Float8", safetensors_bytes(entry("F8_E5M2", "[8]", "[0,8]"), data), ErrorCode::kUnsupported,
       "F8_E5M2"},
      corrupt("ShapeNoList", entry("F32", "2", "[0,8]"), data, "shape that is no list"),
      corrupt("NegativeDim", entry("F32", "[-2]", "[0,8]"), data, "-2 in shape"),
      corrupt("FractionalDim", entry("F32", "[2.0]", "[0,8]"), data, "2.0 in shape"),
      corrupt("DimOver63Bits", entry("F32", "[18446744073709551615]", "[0,8]"), data,
              "impossible dimension"),
      corrupt("SizeOverflows", entry("F32", "[4294967296,4294967296]", "[0,8]"), data, "overflows"),
      corrupt("SizeWrapsToBytes", entry("F32", "[4611686018427387904,4,2]", "[0,8]"), data,
              "overflows"),
      corrupt("ThreeOffsets", entry("F32", "[2]", "[0,8,8]"), data, "3 data_offsets"),
      corrupt("NegativeOffset", entry("F32", "[2]", "[-8,0]"), data, "-8 in data_offsets"),
      corrupt("EndBeforeBegin", entry("F32", "[2]", "[8,0]"), data, "behind its end"),
      corrupt("BytesDontMatchShape", entry("F32", "[3]", "[0,8]"), data, "needs 12 bytes"),
      corrupt("BytesDontMatchDtype", entry("F64", "[2]", "[0,8]"), data, "needs 16 bytes"),
      corrupt("DataCutShort", good, data.substr(0, 7), "cut short"),
      corrupt("OffsetsFarOutside", entry("U8", "[8]", "[1000000,1000008]"), data, "leaving a gap"),
      corrupt("DataTooLong", good, data + "y", "belongs to no tensor"),
      corrupt("GapAtStart", entry("U8", "[7]", "[1,8]"), data, "leaving a gap"),
      corrupt("GapBetween",
              R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
              R"("b":{"dtype":"U8","shape":[5],"data_offsets":[3,8]}})",
              data, "\"b\" begins at 3, leaving a gap"),
      corrupt("Overlap",
              R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},)"
              R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
              data, "\"b\" begins at 4, inside"),
      corrupt("SameBytesTwice",
              R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
              R"("b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
              data, "inside"),
  };
}

class BadCheckpoint : public testing::TestWithParam<BadFile> {};

TEST_P(BadCheckpoint, IsRefusedByName) {
  TempFolder folder;
  folder.write("model.safetensors", GetParam().bytes);
  expect_error(GetParam().code, {"model.safetensors", GetParam().message},
               [&] { Checkpoint checkpoint(folder.path()); });
}

INSTANTIATE_TEST_SUITE_P(Files, BadCheckpoint, testing::ValuesIn(bad_files()),
                         [](const auto& test) { return std::string(test.param.what); });

TEST(Checkpoint, ReadsTensorsInNameOrder) {
  TempFolder folder;
  folder.write("model.safetensors",
               safetensors_file({{"b", DType::kBF16, {2, 2}, encode({1, 2, 3, 4}, DType::kBF16)},
                                 {"empty", DType::kF32, {0, 3}, ""},
                                 {"a", DType::kF32, {}, encode({0.5f}, DType::kF32)}}));
  const Checkpoint checkpoint(folder.path());
  ASSERT_EQ(checkpoint.tensors().size(), 3u);
  EXPECT_EQ(checkpoint.tensors()[0].name, "a");
  EXPECT_EQ(checkpoint.find("c"), nullptr);
  const CheckpointTensor* b = checkpoint.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, DType::kBF16);
  EXPECT_EQ(b->shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(std::string(static_cast<const char*>(b->data), b->bytes),
            encode({1, 2, 3, 4}, DType::kBF16));
  checkpoint.drop_pages(*b);
  checkpoint.drop_pages(*checkpoint.find("empty"));
  EXPECT_EQ(std::string(static_cast<const char*>(b->data), b->bytes),
            encode({1, 2, 3, 4}, DType::kBF16));
  checkpoint.check_unchanged();
}

TEST(Checkpoint, AcceptsMetadataAndPadding) {
  TempFolder folder;
  folder.write("model.safetensors",
               safetensors_bytes(R"({"__metadata__":{"format":"pt"},)"
                                 R"("w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   )",
                                 "x"));
  EXPECT_EQ(Checkpoint(folder.path()).tensors().size(), 1u);
}

TEST(Checkpoint, ChangedSizeIsNoticed) {
  TempFolder folder;
  const std::string bytes = safetensors_file({{"w", DType::kF32, {2}, std::string(8, 'x')}});
  folder.write("model.safetensors", bytes);
  const Checkpoint checkpoint(folder.path());
  fs::resize_file(folder.path() / "model.safetensors", bytes.size() - 4);
  expect_error(ErrorCode::kCorruptFile, {"model.safetensors", std::to_string(bytes.size())},
               [&] { checkpoint.check_unchanged(); });
  fs::resize_file(folder.path() / "model.safetensors", bytes.size() + 4);
  expect_error(ErrorCode::kCorruptFile, {"do not change"}, [&] { checkpoint.check_unchanged(); });
}

TEST(Checkpoint, SaysWhatIsMissing) {
  TempFolder folder;
  expect_error(ErrorCode::kNotFound, {"model.safetensors", "not read: convert"},
               [&] { Checkpoint checkpoint(folder.path()); });
  expect_error(ErrorCode::kNotFound, {"is not a folder"},
               [&] { Checkpoint checkpoint(folder.path() / "nowhere"); });
  fs::create_directory(folder.path() / "model.safetensors");
  expect_error(ErrorCode::kIo, {"not a regular file"},
               [&] { Checkpoint checkpoint(folder.path()); });
}

TEST(Checkpoint, TellsTensorsOfBlocksThatGuess) {
  const MtpTensors nowhere, behind{3};
  for (const char* name : {"mtp.fc.weight", "model.mtp_block.0.x", "ernie.mtp_emb_norm.0.weight"}) {
    EXPECT_TRUE(nowhere.has(name) && behind.has(name)) << name;
  }
  for (const char* name : {"model.layers.3.eh_proj.weight", "layers.3.enorm.weight",
                           "model.layers.12.mlp.gate.weight"}) {
    EXPECT_TRUE(behind.has(name)) << name;
    EXPECT_FALSE(nowhere.has(name)) << name;
  }
  for (const char* name :
       {"model.layers.2.mlp.gate.weight", "model.layers.3", "model.layers.", "model.layers.x.y",
        "model.layers.99999999999.y", "model.vision.layers.3.x", "lm_head.weight"}) {
    EXPECT_FALSE(behind.has(name)) << name;
  }
}

TEST(Checkpoint, FollowsLinksToBlobsElsewhere) {
  TempFolder blobs, folder;
  blobs.write("0123abcd", safetensors_file({{"w", DType::kF32, {1}, "abcd"}}));
  fs::create_symlink(blobs.path() / "0123abcd", folder.path() / "model.safetensors");
  EXPECT_NE(Checkpoint(folder.path()).find("w"), nullptr);
}

/// Two shards "1.safetensors" {a} and "2.safetensors" {b} with this index.
void write_shards(const TempFolder& folder, const std::string& weight_map) {
  folder.write("1.safetensors", safetensors_file({{"a", DType::kF32, {1}, "aaaa"}}));
  folder.write("2.safetensors", safetensors_file({{"b", DType::kF32, {1}, "bbbb"}}));
  folder.write("model.safetensors.index.json",
               R"({"metadata":{"total_size":8},"weight_map":)" + weight_map + "}");
}

TEST(CheckpointIndex, JoinsShards) {
  TempFolder folder;
  write_shards(folder, R"({"a":"1.safetensors","b":"2.safetensors"})");
  const Checkpoint checkpoint(folder.path());
  ASSERT_NE(checkpoint.find("b"), nullptr);
  EXPECT_EQ(std::string(static_cast<const char*>(checkpoint.find("b")->data), 4), "bbbb");
  EXPECT_EQ(checkpoint.tensors().size(), 2u);
}

struct BadIndex {
  const char* what;
  std::string weight_map;
  ErrorCode code;
  std::string message;
};

class BadCheckpointIndex : public testing::TestWithParam<BadIndex> {};

TEST_P(BadCheckpointIndex, IsRefusedByName) {
  TempFolder folder;
  write_shards(folder, GetParam().weight_map);
  expect_error(GetParam().code, {GetParam().message},
               [&] { Checkpoint checkpoint(folder.path()); });
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadCheckpointIndex,
    testing::Values(
        BadIndex{"ParentFolder", R"({"a":"../1.safetensors"})", ErrorCode::kCorruptFile,
                 "not the name of a file in the same folder"},
        BadIndex{"Absolute", R"({"a":"/etc/passwd"})", ErrorCode::kCorruptFile, "/etc/passwd"},
        BadIndex{"Subfolder", R"({"a":"x/1.safetensors"})", ErrorCode::kCorruptFile, "x/1"},
        BadIndex{"Backslash", R"({"a":"x\\1.safetensors"})", ErrorCode::kCorruptFile,
                 "same folder"},
        BadIndex{"Dots", R"({"a":".."})", ErrorCode::kCorruptFile, "\"..\""},
        BadIndex{"NoName", R"({"a":""})", ErrorCode::kCorruptFile, "same folder"},
        BadIndex{"Nul", R"({"a":"1.safetensors\u0000.txt"})", ErrorCode::kCorruptFile, "\\u0000"},
        BadIndex{"NotString", R"({"a":1})", ErrorCode::kCorruptFile, "\"a\" lies in 1"},
        BadIndex{"NotObject", R"(["a"])", ErrorCode::kCorruptFile, "no weight_map"},
        BadIndex{"NothingListed", "{}", ErrorCode::kCorruptFile, "no weight_map"},
        BadIndex{"Twice", R"({"a":"1.safetensors","a":"2.safetensors"})", ErrorCode::kCorruptFile,
                 "\"a\" twice"},
        BadIndex{"ShardMissing", R"({"a":"3.safetensors"})", ErrorCode::kNotFound, "3.safetensors"},
        BadIndex{"TensorNotInShard", R"({"a":"1.safetensors","c":"1.safetensors"})",
                 ErrorCode::kCorruptFile, "\"c\" is not in \"1.safetensors\""},
        BadIndex{"WrongShard", R"({"a":"2.safetensors","b":"1.safetensors"})",
                 ErrorCode::kCorruptFile, "is not what"},
        BadIndex{"TensorNotListed", R"({"a":"1.safetensors","x":"2.safetensors"})",
                 ErrorCode::kCorruptFile, "\"b\" is not what"}),
    [](const auto& test) { return std::string(test.param.what); });

TEST(CheckpointIndex, NotJson) {
  TempFolder folder;
  folder.write("model.safetensors.index.json", "weight_map: {}");
  expect_error(ErrorCode::kCorruptFile, {"index.json", "not valid JSON"},
               [&] { Checkpoint checkpoint(folder.path()); });
}

/// A checkpoint of one tensor, and its file's bytes.
struct OneTensor {
  TempFolder folder;
  std::string bytes =
      safetensors_file({{"a", DType::kF32, {4}, encode({1.0f, 2.0f, 3.0f, 4.0f}, DType::kF32)}});
  std::filesystem::path file = folder.path() / "model.safetensors";

  OneTensor() { folder.write("model.safetensors", bytes); }
  void overwrite() const {
    std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(-1, std::ios::end);
    out.put('\x40');
  }
};

constexpr const char* kChanged = "changed while it was being loaded";

TEST(CheckpointChanges, NoneIsFine) {
  const OneTensor one;
  const Checkpoint checkpoint(one.folder.path());
  EXPECT_NO_THROW(checkpoint.check_unchanged());
}

TEST(CheckpointChanges, AWriteOfTheSameSizeIsSeen) {
  const OneTensor one;
  const Checkpoint checkpoint(one.folder.path());
  one.overwrite();
  expect_error(ErrorCode::kInvalidState, {"model.safetensors", kChanged},
               [&] { checkpoint.check_unchanged(); });
}

TEST(CheckpointChanges, AWriteThatSetsTheTimeBackIsSeen) {
  const OneTensor one;
  const Checkpoint checkpoint(one.folder.path());
  const auto time = std::filesystem::last_write_time(one.file);
  one.overwrite();
  std::filesystem::last_write_time(one.file, time);
  expect_error(ErrorCode::kInvalidState, {kChanged}, [&] { checkpoint.check_unchanged(); });
}

TEST(CheckpointChanges, AnotherFileInItsPlaceIsSeen) {
  const OneTensor one;
  const Checkpoint checkpoint(one.folder.path());
  one.folder.write("other", one.bytes);
  std::filesystem::rename(one.folder.path() / "other", one.file);
  expect_error(ErrorCode::kInvalidState, {kChanged}, [&] { checkpoint.check_unchanged(); });
}

TEST(CheckpointChanges, AFileThatWasJustWrittenIsNoRisk) {
  for (int i = 0; i < 10; ++i) {  // within one tick of the file system's clock
    const OneTensor one;
    one.overwrite();
    const Checkpoint checkpoint(one.folder.path());
    one.overwrite();
    EXPECT_THROW(checkpoint.check_unchanged(), Error);
  }
}

}  // namespace
}  // namespace headrace
