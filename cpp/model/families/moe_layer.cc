#include "model/families/moe_layer.h"

#include <string>
#include <utility>
#include <vector>

#include "model/families/family.h"
#include "model/families/llama_layer.h"

namespace headrace {

namespace {

/// What modules are called, and how many outputs they have.
using Modules = std::vector<std::pair<const char*, int64_t>>;

/// A group of the config's experts.
struct Group {
  const char* own = "";  ///< before the decoder's names of its weights
  int32_t index = 0;     ///< E experts begin with number index * E
  int64_t width = 0;     ///< of an expert
};

/// Expert by expert its modules.
std::vector<StoredPart> each_expert(const MoeConfig& moe, const Group& group,
                                    const std::string& stem, const Modules& modules) {
  std::vector<StoredPart> out;
  const int32_t count = moe.router.num_experts, first = group.index * count;
  for (int32_t expert = first; expert < first + count; ++expert) {
    for (const auto& [module, n] : modules) {
      out.push_back({stem + std::to_string(expert) + "." + module, n});
    }
  }
  return out;
}

/// A tensor of all experts.
struct Fused {
  std::string tensor;
  int32_t experts = 0;
  int64_t n = 0, k = 0;     ///< of an expert's
  bool transposed = false;  ///< [k, n]
  int64_t modules = 1;      ///< whose features take turns
};

/// Expert by expert the features of its modules.
std::vector<StoredPart> slices(const Fused& fused) {
  const auto& [tensor, experts, n, k, transposed, modules] = fused;
  std::vector<StoredPart> out;
  for (int32_t expert = 0; expert < experts; ++expert) {
    for (int64_t module = 0; module < modules; ++module) {
      StoredPart& part = out.emplace_back(StoredPart{tensor, n / modules});
      part.shape = {experts, transposed ? k : n, transposed ? n : k};
      part.offset = expert * n * k + module * (transposed ? 1 : k);
      part.step = modules;
    }
  }
  return out;
}

/// The bias of such a tensor.
VectorSource list_fused_bias(const LayerNaming& naming, const char* own, Fused fused) {
  fused.tensor += "_bias";
  fused.k = 1;
  fused.transposed = false;
  VectorSource out{.name = naming.own(own), .parts = slices(fused)};
  for (StoredPart& part : out.parts) part.shape.pop_back();
  return out;
}

/// What a token of text is multiplied by counts as active.
MatrixSource of_experts(const MoeConfig& moe, const Group& group, MatrixSource source) {
  source.experts = moe.router.num_experts;
  source.active_experts = group.index == 0 ? moe.router.top_k : 0;
  return source;
}

ExpertLayout layout_of(const LayerNaming& naming, const ExpertNames& names) {
  return names.layout.value_or(naming.experts());
}

void list_fused(const ModelConfig& config, const LayerNaming& naming, const ExpertNames& names,
                ExpertGroup& out) {
  const int64_t hidden = config.hidden_size, width = config.moe.expert_width;
  const int32_t count = config.moe.router.num_experts;
  const bool transposed = layout_of(naming, names) == ExpertLayout::kFusedTransposed;
  for (MatrixSource* source : {&out.gate_up, &out.down}) source->transposed = transposed;
  const Fused gate_up{naming.stored(names.fused_gate_up),
                      count,
                      2 * width,
                      hidden,
                      transposed,
                      names.take_turns ? 2 : 1};
  const Fused down{naming.stored(names.fused_down), count, hidden, width, transposed};
  out.gate_up.parts = slices(gate_up);
  out.down.parts = slices(down);
  if (!names.fused_biases) return;
  out.gate_up_bias = list_fused_bias(naming, "experts_gate_up_bias", gate_up);
  out.down_bias = list_fused_bias(naming, "experts_down_bias", down);
}

MatrixSource list_router(const ModelConfig& config, const LayerNaming& naming,
                         const ExpertNames& names, const Group& group) {
  MatrixSource out =
      naming.matrix(std::string(group.own) + "router",
                    {{names.gate, config.moe.router.num_experts}}, config.hidden_size);
  if (group.index > 0) out.parts.front().name = naming.stored(names.vision_gate);
  if (names.gate_transposed) out.transposed = true;
  out.role = MatrixRole::kRouter;
  return out;
}

VectorSource list_correction(const MoeConfig& moe, const LayerNaming& naming,
                             const ExpertNames& names, const Group& group) {
  const int64_t count = moe.router.num_experts, rows = moe.vision_width > 0 ? 2 : 1;
  StoredPart part{naming.stored(names.correction), count};
  if (names.correction_is_row) part.shape = {rows, count};
  part.offset = group.index * count;
  return {.name = naming.own(std::string(group.own) + "router_correction"),
          .parts = {part},
          .is_float = true};
}

ExpertGroup list_group(const ModelConfig& config, const LayerNaming& naming,
                       const ExpertNames& names, const Group& group) {
  const MoeConfig& moe = config.moe;
  const std::string own = group.own;
  const int64_t columns = moe.latent_width > 0 ? moe.latent_width : config.hidden_size;
  const int64_t width = group.width;
  const bool gated = names.gate_proj != nullptr;
  const Modules gate_up = naming.paddle() ? Modules{{"up_gate_proj", 2 * width}}
                          : gated ? Modules{{names.gate_proj, width}, {names.up_proj, width}}
                                  : Modules{{names.up_proj, width}};
  const auto parts = [&](const Modules& modules) {
    return each_expert(moe, group, names.experts, modules);
  };
  ExpertGroup out;
  out.router = moe.router;
  out.activation = gate_of(config, names.gate_proj);
  out.gate = list_router(config, naming, names, group);
  out.gate_up =
      of_experts(moe, group,
                 naming.matrix(own + (gated ? "experts_gate_up" : "experts_up"), parts(gate_up),
                               columns, gated ? WeightUse::kGateUp : WeightUse::kLinear));
  out.down = of_experts(
      moe, group, naming.matrix(own + "experts_down", parts({{names.down_proj, columns}}), width));
  if (layout_of(naming, names) != ExpertLayout::kSeparate) list_fused(config, naming, names, out);
  if (names.gate_bias) {
    out.logit_bias = {.name = naming.own(own + "router_bias"),
                      .parts = {{naming.stored(names.gate) + ".bias", moe.router.num_experts}},
                      .is_float = true};
  }
  if (moe.has_correction) out.correction = list_correction(moe, naming, names, group);
  return out;
}

}  // namespace

std::unique_ptr<ExpertSources> list_experts(const ModelConfig& config, const LayerNaming& naming,
                                            const ExpertNames& names) {
  const MoeConfig& moe = config.moe;
  const int64_t hidden = config.hidden_size;
  auto out = std::make_unique<ExpertSources>();
  out->experts = list_group(config, naming, names, {.width = moe.expert_width});
  if (moe.vision_width > 0) {
    out->vision = std::make_unique<ExpertGroup>(
        list_group(config, naming, names, {"vision_", 1, moe.vision_width}));
  }
  if (moe.shared_width > 0) {
    out->shared = std::make_unique<GatedMlpSources>();
    list_gated_mlp(config, naming,
                   {.name = "shared_",
                    .stem = names.shared,
                    .width = moe.shared_width,
                    .bias = config.mlp_bias,
                    .gate_proj = names.gate_proj,
                    .up_proj = names.up_proj,
                    .down_proj = names.down_proj},
                   *out->shared);
  }
  if (moe.latent_width > 0) {
    const int64_t latent = moe.latent_width;
    out->latent_in =
        naming.linear("latent_in", {{names.latent_in, latent}}, hidden, config.mlp_bias);
    out->latent_out =
        naming.linear("latent_out", {{names.latent_out, hidden}}, latent, config.mlp_bias);
  }
  if (moe.shared_gate) {
    const std::string tensor = naming.stored(names.shared_gate) + std::string(".weight");
    out->shared_gate = {.name = naming.own("shared_gate"),
                        .parts = {{.name = tensor, .n = hidden, .shape = {1, hidden}}}};
  }
  return out;
}

bool has_experts(const ModelConfig& config, int32_t layer) {
  const std::vector<bool>& sparse = config.moe.sparse_layers;
  return !sparse.empty() && sparse[static_cast<size_t>(layer)];
}

std::unique_ptr<FeedForwardSources> list_experts_or_mlp(const ModelConfig& config,
                                                        const LayerNaming& naming,
                                                        const ExpertNames& names) {
  if (!has_experts(config, naming.layer())) return list_mlp(config, naming);
  return list_experts(config, naming, names);
}

LayerSources list_moe_layer(const ModelConfig& config, const LayerNaming& naming,
                            const ExpertNames& names) {
  LayerSources out = list_norms(config, naming);
  out.mixer = list_attention(config, naming);
  out.feed_forward = list_experts_or_mlp(config, naming, names);
  return out;
}

}  // namespace headrace
