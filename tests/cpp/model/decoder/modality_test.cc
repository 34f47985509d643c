// Two groups of experts: rows of text go to one, rows of vision to the other.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "cpp/model/golden_case.h"
#include "headrace/status.h"
#include "model/blocks/expert_block.h"
#include "model/config/model_config.h"
#include "model/decoder/decoder.h"
#include "model/load/list_sources.h"
#include "model/load/load_config.h"
#include "model/weights/weight_loader.h"

namespace headrace {
namespace {

using Rows = std::vector<std::vector<float>>;
using Kinds = std::vector<Modality>;
constexpr Modality kText = Modality::kText, kVision = Modality::kVision;

enum class Groups { kTextOnly, kVisionOnly, kBoth };

/// The experts of vision, made up: half as wide, with names of their own (dummy weights go by
/// them), and another number of experts that a row goes to.
ExpertGroup vision_group(const ExpertGroup& text) {
  ExpertGroup out = text;
  out.router.top_k = text.router.top_k - 1;
  for (MatrixSource* source : {&out.gate, &out.gate_up, &out.down}) {
    source->name += "_vision";
    for (StoredPart& part : source->parts) part.name += "_vision";
  }
  for (StoredPart& part : out.gate_up.parts) part.n /= 2;
  out.down.k /= 2;
  out.correction = {};
  return out;
}

/// A model of layers with experts alone, with dummy weights: the same ones where names are.
class Model {
 public:
  Model(const std::string& isa, Groups groups, size_t layers)
      : backend_(make_cpu_backend({.num_threads = 2, .isa = isa})) {
    ModelConfig config = load_model_config(load_golden_case("ernie4_5_moe").folder);
    ModelSources sources = list_sources(config, likely_naming(config));
    std::erase_if(sources.layers, [](const LayerSources& layer) {
      return dynamic_cast<ExpertSources*>(layer.feed_forward.get()) == nullptr;
    });
    sources.layers.resize(layers);
    config.num_layers = static_cast<int32_t>(layers);
    for (const LayerSources& layer : sources.layers) {
      auto& block = dynamic_cast<ExpertSources&>(*layer.feed_forward);
      if (groups == Groups::kTextOnly) continue;
      ExpertGroup vision = vision_group(block.experts);
      if (groups == Groups::kVisionOnly) {
        block.experts = std::move(vision);
      } else {
        block.vision = std::make_unique<ExpertGroup>(std::move(vision));
      }
    }
    WeightLoader loader(*backend_, nullptr, DType::kF32, 0.3f);
    decoder_ = std::make_unique<Decoder>(*backend_, config, sources, loader,
                                         DecoderOptions{.dummy_weights = true});
    cache_ = backend_->make_kv_cache(decoder_->cache_layout({}), 1);
  }

  /// Of tokens 1, 2, ... the rows [first, first + kinds.size()); returns `wanted` before the head.
  Rows step(int32_t first, const Kinds& kinds, std::vector<int32_t> wanted = {}) {
    const auto count = static_cast<int32_t>(kinds.size());
    std::vector<int32_t> ids(kinds.size()), positions(ids.size()), lens(ids.size(), 64);
    std::iota(ids.begin(), ids.end(), first + 1);
    std::iota(positions.begin(), positions.end(), first);
    const std::vector<int32_t> blocks{0};
    const SeqSlice seq{0, count, first, blocks};
    decoder_->forward({.token_ids = ids,
                       .positions = positions,
                       .rope_lens = lens,
                       .seqs = {&seq, 1},
                       .modalities = kinds},
                      *cache_);
    if (wanted.empty()) {
      wanted.resize(ids.size());
      std::iota(wanted.begin(), wanted.end(), 0);
    }
    const TensorView rows = decoder_->hidden(wanted);
    Rows out;
    for (int64_t i = 0; i < rows.rows(); ++i) {
      const auto* row = rows.row<float>(i);
      out.emplace_back(row, row + rows.cols());
    }
    return out;
  }

  Decoder& decoder() { return *decoder_; }

 private:
  std::shared_ptr<Backend> backend_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<KvCache> cache_;
};

class Modalities : public testing::TestWithParam<std::string> {};

const Kinds kMixed = {kText, kText,   kVision, kVision, kVision, kText,
                      kText, kVision, kText,   kText,   kVision, kText};

// One layer: what its rows see of each other comes before its experts.
TEST_P(Modalities, EachRowHasTheBitsOfItsGroupAlone) {
  const Rows text = Model(GetParam(), Groups::kTextOnly, 1).step(0, kMixed);
  const Rows vision = Model(GetParam(), Groups::kVisionOnly, 1).step(0, kMixed);
  const Rows both = Model(GetParam(), Groups::kBoth, 1).step(0, kMixed);
  for (size_t i = 0; i < kMixed.size(); ++i) {
    EXPECT_EQ(both[i], kMixed[i] == kText ? text[i] : vision[i]) << "row " << i;
    EXPECT_NE(text[i], vision[i]) << "row " << i;
  }
}

TEST_P(Modalities, StepsOfOneKindAreThoseOfThatGroup) {
  Model both(GetParam(), Groups::kBoth, 2);
  const Rows text = Model(GetParam(), Groups::kTextOnly, 2).step(0, Kinds(9, kText));
  const Rows vision = Model(GetParam(), Groups::kVisionOnly, 2).step(0, Kinds(9, kVision));
  EXPECT_EQ(both.step(0, Kinds(9, kText)), text);
  EXPECT_EQ(both.step(0, Kinds(9, kVision)), vision);
}

TEST_P(Modalities, ChunksAndChosenRowsChangeNoBits) {
  Model model(GetParam(), Groups::kBoth, 2);
  const Rows whole = model.step(0, kMixed);
  Rows chunked;
  for (const auto& [first, count] : {std::pair<size_t, size_t>{0, 4}, {4, 1}, {5, 2}, {7, 5}}) {
    const auto begin = kMixed.begin() + static_cast<std::ptrdiff_t>(first);
    const Rows rows = model.step(static_cast<int32_t>(first),
                                 Kinds(begin, begin + static_cast<std::ptrdiff_t>(count)));
    chunked.insert(chunked.end(), rows.begin(), rows.end());
  }
  EXPECT_EQ(chunked, whole);
  for (const std::vector<int32_t>& wanted :
       {std::vector<int32_t>{1, 4, 10}, {2, 7}, {0, 11}, {6}}) {
    const Rows some = model.step(0, kMixed, wanted);
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(some[i], whole[static_cast<size_t>(wanted[i])]) << "row " << wanted[i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, Modalities, testing::Values("reference", "baseline", "avx2"),
                         [](const auto& test) { return test.param; });

TEST(ModalityContract, AStepHasOneOfTheTwoForEachRow) {
  Model model("baseline", Groups::kBoth, 1);
  EXPECT_THROW(model.step(0, {kText, static_cast<Modality>(2)}), InternalError);
  const std::vector<int32_t> ids{1, 2}, positions{0, 1}, lens{2, 2}, blocks{0};
  const SeqSlice seq{0, 2, 0, blocks};
  const auto backend = make_cpu_backend({.isa = "baseline"});
  const Kinds one = {kVision};
  EXPECT_THROW(backend->begin_step({.token_ids = ids,
                                    .positions = positions,
                                    .rope_lens = lens,
                                    .seqs = {&seq, 1},
                                    .modalities = one}),
               InternalError);
}

TEST(ModalityContract, BothGroupsCountAsParameters) {
  const int64_t text = Model("baseline", Groups::kTextOnly, 1).decoder().num_parameters();
  const int64_t vision = Model("baseline", Groups::kVisionOnly, 1).decoder().num_parameters();
  const int64_t both = Model("baseline", Groups::kBoth, 1).decoder().num_parameters();
  EXPECT_GT(both, text);
  EXPECT_GT(both, vision);
  EXPECT_LT(both, text + vision);
}

}  // namespace
}  // namespace headrace
