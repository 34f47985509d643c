// Trials of kernels that some models need, with faults that are planted.

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "cuda/host/support/emulated_gpu.h"
#include "cuda/host/trials/kernel_trials.h"

namespace headrace::cuda {
namespace {

class ModelTrial : public ::testing::Test {
 protected:
  ~ModelTrial() override { EXPECT_EQ(api_.device_bytes(), 0u); }

  FakeCudaApi api_;
  CudaContext context_{api_, 0};
};

TEST_F(ModelTrial, GoodKernelsPass) {
  EXPECT_EQ(try_choices(context_, {}), "");
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    EXPECT_EQ(try_lora(context_, lora, dtype), "");
    for (const int32_t head_dim : {64, 72, 128}) {
      EXPECT_EQ(try_towers(context_, {}, dtype, head_dim), "") << head_dim;
    }
  }
  EXPECT_LE(api_.calls("kernel"), 154);
}

TEST_F(ModelTrial, WrongRowsOfTokensAreSeen) {
  CopyOps ops;
  ops.embed = [](const EmbedArgs& args, Stream stream) {
    EmbedArgs bad = args;
    bad.drawn_by = nullptr;
    embed(bad, stream);
  };
  EXPECT_EQ(try_copies(context_, ops), "rows are wrong");
  ops = {};
  ops.gather_rows = [](const GatherRowsArgs& args, Stream stream) {
    GatherRowsArgs bad = args;
    --bad.out.rows;
    gather_rows(bad, stream);
  };
  EXPECT_EQ(try_copies(context_, ops), "rows are wrong");
}

TEST_F(ModelTrial, WrongAdaptersAreSeen) {
  EXPECT_EQ(try_lora(
                context_,
                [](const LoraArgs& args, Stream stream) {
                  LoraArgs bad = args;
                  bad.max_parts = 1;
                  lora(bad, stream);
                },
                DType::kF16),
            "values are wrong in float16");
}

TEST_F(ModelTrial, WrongChoicesAreSeen) {
  ExpertOps ops;
  ops.route = [](const RouteArgs& args, Stream stream) {
    RouteArgs bad = args;
    bad.correction = nullptr;
    route(bad, stream);
  };
  EXPECT_EQ(try_choices(context_, ops), "other experts are chosen with sigmoids of groups");
  ops.route = [](const RouteArgs& args, Stream stream) {
    RouteArgs bad = args;
    bad.spec.normalize = false;
    route(bad, stream);
  };
  EXPECT_EQ(try_choices(context_, ops), "other experts are chosen with softmax");
  ops = {};
  ops.sort_pairs = [](const SortPairsArgs& args, Stream stream) {
    SortPairsArgs bad = args;
    bad.tile_rows = 4;
    sort_pairs(bad, stream);
  };
  EXPECT_EQ(try_choices(context_, ops), "pairs are sorted wrongly with softmax");
  ops = {};
  ops.add_experts = [](const AddExpertsArgs& args, Stream stream) {
    AddExpertsArgs bad = args;
    --bad.top_k;
    add_experts(bad, stream);
  };
  EXPECT_EQ(try_choices(context_, ops), "experts are added wrongly with softmax");
}

TEST_F(ModelTrial, WrongTowersAreSeen) {
  const auto reason = [this](const TowerOps& ops) {
    return try_towers(context_, ops, DType::kBF16, 80);
  };
  TowerOps ops;
  ops.segment_attention = [](const SegmentAttentionArgs& args, Stream stream) {
    SegmentAttentionArgs bad = args;
    bad.scale *= 1.5f;
    segment_attention(bad, stream);
  };
  EXPECT_EQ(reason(ops), "attention is wrong in bfloat16, heads of 80");
  ops.segment_attention = [](const SegmentAttentionArgs& args, Stream stream) {
    SegmentAttentionArgs bad = args;
    if (args.first > 0) bad.scale *= 1.5f;
    segment_attention(bad, stream);
  };
  EXPECT_EQ(reason(ops), "rows attended apart differ in bfloat16, heads of 80");
  ops = {};
  ops.layer_norm = [](const LayerNormArgs& args, Stream stream) {
    LayerNormArgs bad = args;
    bad.bias = args.weight;
    layer_norm(bad, stream);
  };
  EXPECT_EQ(reason(ops), "layer norms are wrong in bfloat16, heads of 80");
  ops = {};
  ops.rotate = [](const RotateArgs& args, Stream stream) {
    RotateArgs bad = args;
    bad.heads = 1;
    bad.x.cols = args.head_dim;
    rotate(bad, stream);
  };
  EXPECT_EQ(reason(ops), "rotations are wrong in bfloat16, heads of 80");
  ops = {};
  ops.activate = [](const ActivateArgs& args, Stream stream) {
    ActivateArgs bad = args;
    if (args.kind == Activation::kQuickGelu) bad.kind = Activation::kSilu;
    activate(bad, stream);
  };
  EXPECT_EQ(reason(ops), "activations are wrong in bfloat16, heads of 80");
}

}  // namespace
}  // namespace headrace::cuda
