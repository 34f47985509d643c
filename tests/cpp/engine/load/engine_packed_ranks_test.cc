// Packed files of models that several devices share: the bits of the folder's own weights, and the
// refusal of files for other numbers of devices.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "cpp/engine/load/packed_model.h"
#include "cpp/model/expect_error.h"
#include "headrace/pack.h"

namespace headrace {
namespace {

ModelOptions shared(const PackedModel& model, int32_t ranks) {
  ModelOptions out = model.options();
  out.device = "cpu";
  out.tensor_parallel_size = ranks;
  out.num_threads = ranks;
  return out;
}

/// Packs with these options, and loads with and without what came of it.
void expect_same_bits(const PackedModel& model, const ModelOptions& options) {
  model.pack(options);
  check_packed(options);
  ModelOptions plain = options, copied = options;
  plain.packed_weights.clear();
  copied.packed_copy = true;
  const Answer want = answer_of(plain);
  EXPECT_EQ(want.tokens.size(), 12u);
  EXPECT_EQ(answer_of(options), want);
  EXPECT_EQ(answer_of(copied), want);
}

TEST(PackedRanks, GiveTheBitsOfTheFolder) {
  struct Case {
    const char* name;
    int32_t ranks;
    bool whole_experts;
  };
  for (const auto& [name, ranks, whole_experts] :
       {Case{"llama", 2, false}, Case{"llama_tied_mqa", 4, false},
        Case{"ernie4_5_bias_paddle", 2, false}, Case{"qwen3_moe", 2, false},
        Case{"qwen3_moe", 2, true}}) {
    SCOPED_TRACE(::testing::Message() << name << " " << ranks << " " << whole_experts);
    const PackedModel model(name);
    ModelOptions options = shared(model, ranks);
    options.dtype = "bfloat16";
    options.enable_expert_parallel = whole_experts;
    expect_same_bits(model, options);
  }
  const PackedModel model("llama");
  ModelOptions options = shared(model, 2);
  options.quantization = "wint8";
  options.quantization_group_size = 32;
  expect_same_bits(model, options);
}

TEST(PackedRanks, MapWhatTheFileHolds) {
  const PackedModel model("llama");
  const ModelOptions options = shared(model, 2);
  model.pack(options);
  Engine engine;
  engine.install_model("m", options);
  const ModelInfo info = engine.model_info("m");
  EXPECT_EQ(info.tensor_parallel_size, 2);
  EXPECT_EQ(info.mapped_weight_bytes, info.weight_bytes);
  EXPECT_EQ(info.packed_weights, options.packed_weights);
  EXPECT_LT(info.weight_bytes, std::filesystem::file_size(model.file("packed")));
}

// A folder without weights of its own is a model for that number of devices.
TEST(PackedRanks, AFolderOfPackedWeightsAlone) {
  const PackedModel model("llama");
  ModelOptions options = shared(model, 2);
  model.pack(options);
  std::filesystem::rename(model.file("packed"), model.file(kPackedFileName));
  for (const std::string& name : model.names()) {
    if (name.find(".safetensors") != std::string::npos) std::filesystem::remove(model.file(name));
  }
  options.packed_weights.clear();
  EXPECT_EQ(answer_of(options).tokens.size(), 12u);
  options.tensor_parallel_size = 1;
  expect_error(ErrorCode::kUnsupported, {"model.headrace is packed for 2 devices", "on 1 device:"},
               [&] { answer_of(options); });
}

TEST(PackedRanks, OfOtherNumbersAreRefusedWithTheRemedy) {
  const PackedModel model("qwen3_moe");
  const auto refused = [&](const ModelOptions& packed, const ModelOptions& loaded,
                           std::initializer_list<std::string> words) {
    model.pack(packed);
    expect_error(ErrorCode::kUnsupported, words, [&] { answer_of(loaded); });
    expect_error(ErrorCode::kUnsupported, words, [&] { check_packed(loaded); });
  };
  const ModelOptions one = shared(model, 1), two = shared(model, 2);
  refused(one, two, {"packed for 1 device,", "2 devices", "tensor_parallel_size"});
  refused(two, one, {"packed for 2 devices,", "1 device", "folder's own weights"});
  ModelOptions whole = two;
  whole.enable_expert_parallel = true;
  refused(whole, two, {"packed for 2 devices with whole experts,", "enable_expert_parallel"});
  refused(two, whole, {"packed for 2 devices,", "2 devices with whole experts"});
}

TEST(PackedRanks, WhatCannotBeLoadedIsNotPacked) {
  const PackedModel model("llama");
  const auto refused = [&](const ModelOptions& options, std::initializer_list<std::string> words) {
    expect_error(ErrorCode::kUnsupported, words, [&] { model.pack(options); });
    model.pack(shared(model, 2));
    expect_error(ErrorCode::kUnsupported, words, [&] { check_packed(options); });
  };
  ModelOptions options = shared(model, 2);
  options.enable_expert_parallel = true;
  refused(options, {"enable_expert_parallel", "no experts", "leave it out"});
  options = model.options();
  options.devices = {"cuda:0", "cuda:1"};
  refused(options, {"for the CPU", "cuda:0"});
}

// A draft model is on the first device alone.
TEST(PackedRanks, ADraftModelPackedForSeveralIsRefused) {
  const PackedModel model("llama"), draft("llama");
  draft.pack(shared(draft, 2));
  std::filesystem::rename(draft.file("packed"), draft.file(kPackedFileName));
  for (const std::string& name : draft.names()) {
    if (name.find(".safetensors") != std::string::npos) std::filesystem::remove(draft.file(name));
  }
  ModelOptions options = shared(model, 2);
  options.packed_weights.clear();
  options.speculative.method = "draft_model";
  options.speculative.model = draft.options().path;
  expect_error(ErrorCode::kUnsupported, {"model.headrace is packed for 2 devices", "on 1 device:"},
               [&] { answer_of(options); });
}

TEST(PackedRanks, HeadersThatLieAreErrors) {
  const PackedModel model("llama");
  const ModelOptions options = shared(model, 2);
  for (const char* text : {"0", "65", "-2", "2 ", "", "99999999999", "x"}) {
    SCOPED_TRACE(text);
    model.pack(options);
    model.edit_header([&](Json& json) { json["__metadata__"]["tensor_parallel_size"] = text; });
    expect_error(ErrorCode::kCorruptFile, {"tensor_parallel_size of its header"},
                 [&] { answer_of(options); });
  }
  model.pack(options);
  model.edit_header([&](Json& json) { json["__metadata__"]["enable_expert_parallel"] = "yes"; });
  expect_error(ErrorCode::kCorruptFile, {"enable_expert_parallel of its header"},
               [&] { answer_of(options); });
  model.pack(shared(model, 1));
  model.edit_header([&](Json& json) { json["__metadata__"]["tensor_parallel_size"] = "2"; });
  expect_error(ErrorCode::kCorruptFile, {"has no tensor", ".rank.0"}, [&] { answer_of(options); });
}

}  // namespace
}  // namespace headrace
