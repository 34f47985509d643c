// Models from packed files: the same bits as from the checkpoint, honest sizes, and no file that
// does not fit its model.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <array>
#include <thread>

#include "backend/cpu/cpu_backend.h"
#include "cpp/engine/load/packed_model.h"
#include "cpp/model/expect_error.h"
#include "cpp/model/golden_case.h"
#include "cpp/model/quantized_checkpoint.h"
#include "every_case.h"
#include "headrace/pack.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

class PackedBits : public testing::TestWithParam<std::string> {};

TEST_P(PackedBits, AreThoseOfTheCheckpoint) {
  const PackedModel model(GetParam());
  size_t turn = GetParam().size();
  for (const std::string& isa : available_cpu_isas()) {
    ++turn;
    for (const size_t i : {0u, 1u, 2u}) {
      const char* const dtype = std::array{"float32", "bfloat16", "float16"}[i];
      if (!every_case() && i != turn % 3) continue;
      SCOPED_TRACE(isa + " " + dtype);
      ModelOptions mapped = model.options();
      mapped.cpu_isa = isa;
      mapped.dtype = dtype;
      model.pack(mapped);
      ModelOptions plain = mapped, copied = mapped;
      plain.packed_weights.clear();
      copied.packed_copy = true;
      const Answer want = answer_of(plain);
      EXPECT_EQ(want.tokens.size(), 12u);
      EXPECT_EQ(want.logprobs.size(), 36u);
      EXPECT_EQ(answer_of(mapped), want);
      EXPECT_EQ(answer_of(copied), want);
    }
  }
}

// The layers come as small floats; what they are rounded to is in the file.
TEST(PackedQuantized, ACheckpointOfNumbersRoundedAgain) {
  for (const auto& [name, quantization] :
       {std::pair{"llama_fp8", "wint8"}, {"llama_mxfp4", "wint4"}, {"gpt_oss_mxfp4", "wint4"}}) {
    SCOPED_TRACE(name);
    const PackedModel model(name);
    ModelOptions options = model.options();
    options.quantization = quantization;
    model.pack(options);
    ModelOptions plain = options;
    plain.packed_weights.clear();
    EXPECT_EQ(answer_of(options), answer_of(plain));
  }
}

// Formats are found by name: of a name that the header has not, there is none.
TEST(PackedQuantized, AHeaderWithoutALayerIsAnError) {
  const PackedModel model("llama");
  const TempFolder quantized, plain;
  write_quantized(model.options().path, Tool::kGptq, quantized.path(), plain.path());
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::copy_file(quantized.path() / file, model.file(file), fs::copy_options::overwrite_existing);
  }
  model.pack();
  EXPECT_EQ(answer_of(model.options()).tokens.size(), 12u);
  model.edit_header([](Json& header) {
    for (auto at = header.begin(); at != header.end();) {
      at = at.key().starts_with("layers.") ? header.erase(at) : std::next(at);
    }
  });
  expect_error(ErrorCode::kCorruptFile, {}, [&] { answer_of(model.options()); });
}

INSTANTIATE_TEST_SUITE_P(Goldens, PackedBits, testing::ValuesIn(golden_case_names()));

TEST(PackedModelTest, ReportsAndSizes) {
  const PackedModel model;
  ModelOptions options = model.options();
  options.packed_weights.clear();
  options.cpu_isa = "baseline";
  options.dtype = "bfloat16";
  const PackReport report = pack_model(options, model.file("packed").string());
  EXPECT_EQ(report.file, model.file("packed").string());
  EXPECT_EQ(report.file_bytes, fs::file_size(model.file("packed")));
  EXPECT_EQ(report.dtype, "bfloat16");
  EXPECT_EQ(report.isa, "baseline");
  EXPECT_EQ(report.layout.rfind("cpu-panels-", 0), 0u) << report.layout;
  EXPECT_GT(report.num_tensors, 10);

  Engine engine;
  engine.install_model("plain", options);
  options.packed_weights = report.file;
  options.dtype = "auto";
  engine.install_model("mapped", options);
  options.packed_copy = true;
  engine.install_model("copied", options);
  const ModelInfo plain = engine.model_info("plain"), mapped = engine.model_info("mapped"),
                  copied = engine.model_info("copied");
  EXPECT_EQ(mapped.dtype, "bfloat16") << "auto: the file's";
  EXPECT_EQ(plain.mapped_weight_bytes, 0u);
  EXPECT_EQ(copied.mapped_weight_bytes, 0u);
  EXPECT_EQ(mapped.mapped_weight_bytes, mapped.weight_bytes);
  EXPECT_EQ(copied.weight_bytes, plain.weight_bytes);
  EXPECT_LE(mapped.weight_bytes, plain.weight_bytes);
  EXPECT_LT(mapped.weight_bytes, report.file_bytes);
  EXPECT_EQ(mapped.num_parameters, plain.num_parameters);
  engine.start_model("plain");
  engine.start_model("mapped");
  const ModelStats stats = engine.model_stats("mapped");
  EXPECT_EQ(stats.mapped_bytes, mapped.weight_bytes);
  EXPECT_LE(stats.memory_bytes + mapped.weight_bytes,
            engine.model_stats("plain").memory_bytes + 4096);
}

TEST(PackedModelTest, AFolderWithoutWeights) {
  const PackedModel model;
  ModelOptions options = model.options();
  options.packed_weights.clear();
  const Answer want = answer_of(options);
  model.pack();
  fs::remove(model.file("model.safetensors"));
  EXPECT_EQ(answer_of(model.options()), want) << "named";
  expect_error(ErrorCode::kNotFound, {"model.safetensors"}, [&] { answer_of(options); });
  fs::rename(model.file("packed"), model.file(kPackedFileName));
  EXPECT_EQ(answer_of(options), want) << "found";
  // What is found is checked like what is named.
  options.dtype = "float16";
  expect_error(ErrorCode::kUnsupported, {kPackedFileName, "bfloat16", "float16"},
               [&] { answer_of(options); });
  // With weights in the folder it is not used unasked.
  model.write("model.safetensors", "junk");
  options.dtype = "auto";
  expect_error(ErrorCode::kCorruptFile, {"model.safetensors"}, [&] { answer_of(options); });
}

TEST(PackedModelTest, ReplacedWhileInUse) {
  const PackedModel model;
  model.pack();
  Engine engine;
  engine.install_model("m", model.options());
  engine.start_model("m");
  const Answer want = ask(engine, "m");
  model.pack();
  model.pack();
  EXPECT_EQ(ask(engine, "m"), want);
  fs::remove(model.file("packed"));
  EXPECT_EQ(ask(engine, "m"), want);
}

TEST(PackedModelTest, ManyEnginesPackAndLoadAtOnce) {
  const PackedModel model;
  model.pack();
  const Answer want = answer_of(model.options());
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5; ++round) {
        if (i % 2 == 0) model.pack();
        EXPECT_EQ(answer_of(model.options()), want);
      }
    });
  }
  threads.clear();
  for (const std::string& name : model.names()) EXPECT_NE(name.front(), '.') << name;
}

TEST(PackedModelTest, FitsOneLayoutOnly) {
  const PackedModel model;
  ModelOptions options = model.options();
  options.cpu_isa = "reference";
  model.pack(options);
  EXPECT_NO_THROW(check_packed(options));
  options.cpu_isa = "baseline";
  expect_error(ErrorCode::kUnsupported,
               {"packed", "cpu-reference-1", "baseline", "cpu-panels-1", "on this machine"},
               [&] { answer_of(options); });
  expect_error(ErrorCode::kUnsupported, {"cpu-reference-1"}, [&] { check_packed(options); });
}

TEST(PackedModelTest, KeepsOneDtype) {
  const PackedModel model;
  ModelOptions options = model.options();
  options.dtype = "bfloat16";
  model.pack(options);
  EXPECT_NO_THROW(answer_of(options));
  options.dtype = "float32";
  expect_error(ErrorCode::kUnsupported, {"packed", "bfloat16", "float32", "auto"},
               [&] { answer_of(options); });
}

TEST(PackedModelTest, OptionsThatDoNotGoTogether) {
  const PackedModel model;
  model.pack();
  ModelOptions options = model.options();
  options.dummy_weights = true;
  expect_error(ErrorCode::kInvalidArgument, {"dummy_weights"}, [&] { answer_of(options); });
  options = model.options();
  options.packed_weights = model.file("nowhere").string();
  expect_error(ErrorCode::kNotFound, {"nowhere"}, [&] { answer_of(options); });
  options.packed_weights.clear();
  expect_error(ErrorCode::kInvalidArgument, {"packed_weights"}, [&] { check_packed(options); });
  const auto pack_to = [&](const std::string& file) { pack_model(options, file); };
  options.dummy_weights = true;
  expect_error(ErrorCode::kInvalidArgument, {"dummy_weights"}, [&] { pack_to("x"); });
  options.dummy_weights = false;
  expect_error(ErrorCode::kInvalidArgument, {"empty"}, [&] { pack_to(""); });
  expect_error(ErrorCode::kInvalidArgument, {"a folder"}, [&] { pack_to(options.path); });
  expect_error(ErrorCode::kInvalidArgument, {"part of the model"},
               [&] { pack_to(model.file("model.safetensors").string()); });
  expect_error(ErrorCode::kIo, {"no/such"}, [&] { pack_to(model.file("no/such").string()); });
  options.path = model.file("empty").string();
  fs::create_directory(options.path);
  expect_error(ErrorCode::kNotFound, {"config.json"}, [&] { pack_to("x"); });
}

// --- staleness ------------------------------------------------------------------------------

class PackedStale : public testing::Test {
 protected:
  void SetUp() override { model_.pack(); }
  void expect_stale(std::initializer_list<std::string> parts) {
    expect_error(ErrorCode::kInvalidState, parts, [&] { answer_of(model_.options()); });
    expect_error(ErrorCode::kInvalidState, {"stale"}, [&] { check_packed(model_.options()); });
    model_.pack();
    EXPECT_NO_THROW(answer_of(model_.options()));
  }

  PackedModel model_;
};

TEST_F(PackedStale, AByteOfTheWeights) {
  const fs::path file = model_.file("model.safetensors");
  const auto time = fs::last_write_time(file);
  std::string bytes = model_.read("model.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  model_.write("model.safetensors", bytes);
  fs::last_write_time(file, time);  // the time that a program can set says nothing
  expect_stale({"packed", "stale", "model.safetensors", "changed", "Pack the model again"});
}

TEST_F(PackedStale, WrittenRightAfterPacking) {
  std::string bytes = model_.read("model.safetensors");
  const auto time = fs::last_write_time(model_.file("model.safetensors"));
  for (int i = 0; i < 3; ++i) {
    model_.pack();
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    model_.write("model.safetensors", bytes);
    fs::last_write_time(model_.file("model.safetensors"), time);
    expect_stale({"changed"});
  }
}

TEST_F(PackedStale, ASizeOfTheWeights) {
  const std::string bytes = model_.read("model.safetensors");
  model_.write("model.safetensors", bytes + " ");
  expect_error(ErrorCode::kInvalidState,
               {"stale", std::to_string(bytes.size()), std::to_string(bytes.size() + 1)},
               [&] { answer_of(model_.options()); });
}

TEST_F(PackedStale, OtherFiles) {
  fs::rename(model_.file("model.safetensors"), model_.file("shard.safetensors"));
  model_.write("model.safetensors.index.json",
               R"({"weight_map": {"model.norm.weight": "shard.safetensors"}})");
  expect_error(ErrorCode::kInvalidState, {"stale", "model.safetensors"},
               [&] { answer_of(model_.options()); });
}

TEST_F(PackedStale, AKeyOfTheConfig) {
  Json config = Json::parse(model_.read("config.json"));
  config["rope_theta"] = 12345.0;
  model_.write("config.json", config.dump());
  expect_stale({"stale", "config.json", "rope_theta (12345.0, when packed:"});
  config.erase("eos_token_id");
  model_.write("config.json", config.dump());
  expect_stale({"eos_token_id (nothing, when packed: "});
}

TEST_F(PackedStale, NotByTouchingCopyingOrReformatting) {
  fs::last_write_time(model_.file("model.safetensors"), fs::file_time_type::clock::now());
  model_.write("config.json", Json::parse(model_.read("config.json")).dump(8));
  EXPECT_NO_THROW(answer_of(model_.options()));
  const std::string bytes = model_.read("model.safetensors");
  fs::remove(model_.file("model.safetensors"));
  model_.write("model.safetensors", bytes);
  EXPECT_NO_THROW(answer_of(model_.options()));
}

// --- damage ---------------------------------------------------------------------------------

class PackedDamage : public PackedStale {
 protected:
  void expect_refused(ErrorCode code, std::initializer_list<std::string> parts) {
    expect_error(code, parts, [&] { answer_of(model_.options()); });
    expect_error(code, {"packed"}, [&] { check_packed(model_.options()); });
  }
};

TEST_F(PackedDamage, AnyByteOfAnyTensor) {
  const std::string whole = model_.read("packed");
  std::string bytes = whole;
  for (size_t at = 4096 * 8; at < whole.size(); at += 9973) {
    bytes[at] = static_cast<char>(bytes[at] ^ 16);
    model_.write("packed", bytes);
    expect_refused(ErrorCode::kCorruptFile, {"damaged", "content hash", "Pack the model again"});
    bytes[at] = whole[at];
  }
  bytes.back() = static_cast<char>(~bytes.back());  // of the padding
  model_.write("packed", bytes);
  expect_refused(ErrorCode::kCorruptFile, {"damaged"});
}

TEST_F(PackedDamage, AnyLength) {
  const std::string whole = model_.read("packed");
  for (const size_t size :
       {size_t{0}, size_t{7}, size_t{100}, size_t{5000}, whole.size() / 2, whole.size() - 1}) {
    model_.write("packed", whole.substr(0, size));
    expect_refused(ErrorCode::kCorruptFile, {});
  }
  model_.write("packed", whole + "x");
  expect_refused(ErrorCode::kCorruptFile, {"belongs to no tensor"});
}

TEST_F(PackedDamage, NoPackedFile) {
  model_.write("packed", model_.read("model.safetensors"));
  expect_refused(ErrorCode::kUnsupported, {"not a packed file", "pack_model"});
}

TEST_F(PackedDamage, OtherVersion) {
  model_.edit_header([](Json& header) { header["__metadata__"]["headrace_packed"] = "2"; });
  expect_refused(ErrorCode::kUnsupported, {"version \"2\"", "reads version 1", "again"});
}

TEST_F(PackedDamage, MissingMetadata) {
  for (const char* key : {"written_by", "layout", "dtype", "config", "source", "hashes"}) {
    model_.edit_header([&](Json& header) { header["__metadata__"].erase(key); });
    expect_refused(ErrorCode::kCorruptFile, {key});
    model_.pack();
  }
  model_.edit_header([](Json& header) { header["__metadata__"]["dtype"] = "int3"; });
  expect_refused(ErrorCode::kCorruptFile, {"dtype"});
}

TEST_F(PackedDamage, MalformedSourceAndHashes) {
  const auto expect_bad = [&](const std::string& key, const std::function<void(Json&)>& change) {
    model_.edit_metadata(key, change);
    expect_refused(ErrorCode::kCorruptFile, {key});
    model_.pack();
  };
  expect_bad("source", [](Json& source) { source["files"] = 3; });
  expect_bad("source", [](Json& source) { source["files"][0] = "model.safetensors"; });
  expect_bad("source", [](Json& source) { source["files"][0]["bytes"] = 1.5; });
  expect_bad("source", [](Json& source) { source["files"][0]["bytes"] = uint64_t{1} << 63; });
  expect_bad("source", [](Json& source) { source["files"][0].erase("name"); });
  expect_bad("source", [](Json& source) { source["files"][0]["hash"] = "0x12"; });
  expect_bad("hashes", [](Json& hashes) { hashes.erase("embedding"); });
  expect_bad("hashes", [](Json& hashes) { hashes["embedding"] = "00000000000000zz"; });
  expect_bad("hashes", [](Json& hashes) { hashes["embedding"] = 7; });
}

TEST_F(PackedDamage, OtherTensors) {
  const auto rename = [&](const std::string& from, const std::string& to) {
    model_.edit_header([&](Json& header) {
      header[to] = header[from];
      header.erase(from);
    });
    model_.edit_metadata("hashes", [&](Json& hashes) { hashes[to] = hashes[from]; });
  };
  rename("layers.0.qkv", "layers.9.qkv");
  expect_refused(ErrorCode::kCorruptFile, {"no tensor", "layers.0.qkv"});
  model_.pack();
  // The same bytes under names that have other sizes.
  rename("layers.0.o", "swap");
  rename("embedding", "layers.0.o");
  rename("swap", "embedding");
  expect_refused(ErrorCode::kCorruptFile, {"embedding", "needs"});
  model_.pack();
  model_.edit_header([](Json& header) {
    header["more"] = {{"dtype", "U8"}, {"shape", {0}}, {"data_offsets", {0, 0}}};
  });
  model_.edit_metadata("hashes", [](Json& hashes) { hashes["more"] = "0000000000000000"; });
  expect_refused(ErrorCode::kCorruptFile, {"tensors, this model"});
}

// --- writing --------------------------------------------------------------------------------

TEST_F(PackedDamage, AFailedWriteLeavesTheOldFile) {
  const std::string before = model_.read("packed");
  const auto names = model_.names();
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{.rlim_cur = before.size() / 2, .rlim_max = limit.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  ModelOptions options = model_.options();
  expect_error(ErrorCode::kIo, {"cannot write", "packed"}, [&] { model_.pack(); });
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(model_.names(), names);
  EXPECT_EQ(model_.read("packed"), before);
  EXPECT_NO_THROW(answer_of(model_.options()));
}

TEST_F(PackedDamage, AFailedReadLeavesTheOldFile) {
  const std::string before = model_.read("packed");
  std::string bytes = model_.read("model.safetensors");
  model_.write("model.safetensors", bytes.substr(0, bytes.size() - 9));
  const auto names = model_.names();
  expect_error(ErrorCode::kCorruptFile, {"cut short"}, [&] { model_.pack(); });
  EXPECT_EQ(model_.names(), names);
  EXPECT_EQ(model_.read("packed"), before);
}

}  // namespace
}  // namespace headrace
