#include "model/families/moe_layer.h"

#include <string>
#include <utility>
#include <vector>

#include "model/families/family.h"
#include "model/families/llama_layer.h"

namespace headrace {

namespace {

/// Expert 0's modules, then expert 1's: what each is called and how many outputs it has.
std::vector<StoredPart> each_expert(const MoeConfig& moe, const std::string& stem,
                                    const std::vector<std::pair<const char*, int64_t>>& modules) {
  std::vector<StoredPart> out;
  for (int32_t expert = 0; expert < moe.router.num_experts; ++expert) {
    for (const auto& [module, n] : modules) {
      out.push_back({stem + std::to_string(expert) + "." + module, n});
    }
  }
  return out;
}

/// A slice [n, k] for each expert of one tensor, or [k, n].
std::vector<StoredPart> slices(const std::string& tensor, int32_t experts, int64_t n, int64_t k,
                               bool transposed) {
  std::vector<StoredPart> out;
  for (int32_t expert = 0; expert < experts; ++expert) {
    StoredPart& part = out.emplace_back(StoredPart{tensor, n});
    part.shape = {experts, transposed ? k : n, transposed ? n : k};
    part.offset = expert * n * k;
  }
  return out;
}

MatrixSource of_experts(const MoeConfig& moe, MatrixSource source) {
  source.experts = moe.router.num_experts;
  source.active_experts = moe.router.top_k;
  return source;
}

void list_fused(const ModelConfig& config, const LayerNaming& naming, const ExpertNames& names,
                ExpertGroup& out) {
  const int64_t hidden = config.hidden_size, width = config.moe.expert_width;
  const int32_t count = config.moe.router.num_experts;
  const bool transposed = naming.experts() == ExpertLayout::kFusedTransposed;
  for (MatrixSource* source : {&out.gate_up, &out.down}) source->transposed = transposed;
  out.gate_up.parts =
      slices(naming.stored(names.fused_gate_up), count, 2 * width, hidden, transposed);
  out.down.parts = slices(naming.stored(names.fused_down), count, hidden, width, transposed);
}

}  // namespace

std::unique_ptr<ExpertSources> list_experts(const ModelConfig& config, const LayerNaming& naming,
                                            const ExpertNames& names) {
  const MoeConfig& moe = config.moe;
  const int64_t hidden = config.hidden_size, width = moe.expert_width;
  const int32_t count = moe.router.num_experts;
  const std::vector<std::pair<const char*, int64_t>> gate_up =
      naming.paddle() ? std::vector<std::pair<const char*, int64_t>>{{"up_gate_proj", 2 * width}}
                      : std::vector<std::pair<const char*, int64_t>>{{names.gate_proj, width},
                                                                     {names.up_proj, width}};
  auto out = std::make_unique<ExpertSources>();
  ExpertGroup& experts = out->experts;
  experts.router = moe.router;
  experts.gate = naming.matrix("router", {{names.gate, count}}, hidden);
  experts.gate.role = MatrixRole::kRouter;
  experts.gate_up =
      of_experts(moe, naming.matrix("experts_gate_up", each_expert(moe, names.experts, gate_up),
                                    hidden, WeightUse::kGateUp));
  experts.down = of_experts(
      moe, naming.matrix("experts_down",
                         each_expert(moe, names.experts, {{names.down_proj, hidden}}), width));
  experts.gate_up.slice_by = SliceBy::kRows;
  experts.down.slice_by = SliceBy::kColumns;
  const bool fused = naming.experts() != ExpertLayout::kSeparate;
  if (fused) list_fused(config, naming, names, experts);
  if (fused || naming.paddle()) {
    for (StoredPart& part : experts.gate_up.parts) part.pieces = {width, width};
  }
  if (moe.has_correction) {
    StoredPart part{naming.stored(names.correction), count};
    if (names.correction_is_row) part.shape = {1, count};
    experts.correction = {.name = naming.own("router_correction"), .parts = {part}};
  }
  if (moe.shared_width > 0) {
    out->shared = std::make_unique<GatedMlpSources>();
    list_gated_mlp(config, naming,
                   {.name = "shared_", .stem = names.shared, .width = moe.shared_width},
                   *out->shared);
  }
  if (moe.shared_gate) {
    const std::string tensor = naming.stored(names.shared_gate) + std::string(".weight");
    out->shared_gate = {.name = naming.own("shared_gate"),
                        .parts = {{.name = tensor, .n = hidden, .shape = {1, hidden}}}};
  }
  return out;
}

LayerSources list_moe_layer(const ModelConfig& config, const LayerNaming& naming,
                            const ExpertNames& names) {
  LayerSources out = list_norms(config, naming);
  out.mixer = list_attention(config, naming);
  if (config.moe.sparse_layers[static_cast<size_t>(naming.layer())]) {
    out.feed_forward = list_experts(config, naming, names);
  } else {
    out.feed_forward = list_mlp(config, naming);
  }
  return out;
}

}  // namespace headrace
