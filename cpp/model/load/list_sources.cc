#include "model/load/list_sources.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include "base/check.h"
#include "model/families/family.h"
#include "model/families/llama_layer.h"
#include "model/families/wrapper.h"
#include "model/load/load_config.h"
#include "model/sources/source_checker.h"
#include "model/sources/stored_layers.h"

namespace headrace {

namespace {

void number_sites(ModelSources& sources) {
  for (LayerSources& layer : sources.layers) {
    for (MatrixSource* source : layer.matrices()) {
      if (source->adaptable) source->site = sources.num_sites++;
    }
  }
}

}  // namespace

namespace {

constexpr std::string_view kFusedExperts = ".mlp.experts.gate_up_proj";

/// By the shape of all experts of a layer as one tensor; null: there is none.
ExpertLayout layout_of(const CheckpointTensor* fused, const ModelConfig& config) {
  if (fused == nullptr) return ExpertLayout::kSeparate;
  const bool as_used = !fused->shape.empty() && fused->shape.back() == config.hidden_size;
  return as_used ? ExpertLayout::kFused : ExpertLayout::kFusedTransposed;
}

/// Of the first layer that has experts.
ExpertLayout detect_experts(const ModelConfig& config, const Checkpoint& checkpoint,
                            const std::string& prefix) {
  const std::vector<bool>& sparse = config.moe.sparse_layers;
  const auto first = std::find(sparse.begin(), sparse.end(), true);
  if (first == sparse.end() || config.moe.vision_width > 0) return ExpertLayout::kSeparate;
  const std::string name = str_cat(prefix, "layers.", first - sparse.begin(), kFusedExperts);
  return layout_of(checkpoint.find(name), config);
}

/// Of the MTP block, which may differ from the layers.
ExpertLayout detect_mtp_experts(const ModelConfig& config, const Checkpoint& checkpoint) {
  const MtpTensors mtp = mtp_tensors(config);
  const auto& tensors = checkpoint.tensors();
  const auto fused = std::ranges::find_if(tensors, [&mtp](const CheckpointTensor& tensor) {
    return tensor.name.ends_with(kFusedExperts) && mtp.has(tensor.name);
  });
  return layout_of(fused == tensors.end() ? nullptr : &*fused, config);
}

}  // namespace

namespace {

/// A tensor that every checkpoint of the family with that naming has, or codes in its place.
std::string first_tensor(const Family& family, const ModelConfig& config,
                         const TensorNaming& naming) {
  const LayerSources layer = family.list_layer(config, LayerNaming(naming, 0));
  return layer.matrices().front()->parts.front().name;
}

bool has_weight(const Checkpoint& checkpoint, std::string_view tensor) {
  constexpr std::string_view kSuffix = ".weight";
  if (checkpoint.find(tensor) != nullptr) return true;
  if (!tensor.ends_with(kSuffix)) return false;
  tensor.remove_suffix(kSuffix.size());
  return checkpoint.find(str_cat(tensor, ".qweight")) != nullptr ||
         checkpoint.find(str_cat(tensor, ".weight_packed")) != nullptr;
}

}  // namespace

namespace {

/// Of the decoder's tensors: by the first of them.
TensorNaming detect_decoder(const Family& family, const ModelConfig& config,
                            const Checkpoint& checkpoint,
                            const std::vector<const char*>& prefixes) {
  for (const char* prefix : prefixes) {
    const TensorNaming paddle{CheckpointLayout::kPaddle, prefix};
    const std::string fused = first_tensor(family, config, paddle);
    TensorNaming torch = family.torch_naming(prefix);
    const std::string plain = first_tensor(family, config, torch);
    if (fused != plain && checkpoint.find(fused) != nullptr) {
      if (family.has_paddle_layout) return paddle;
      throw_error(ErrorCode::kUnsupported, "the checkpoint has the fused tensor ", fused,
                  ", a layout that ", config.model_type, " has not.");
    }
    if (!has_weight(checkpoint, plain)) continue;
    if (std::string_view(prefix) == "ernie.") {
      throw_error(ErrorCode::kUnsupported, "the checkpoint has ", plain,
                  ": Paddle's layout without fused qkv_proj is not supported.");
    }
    torch.experts = detect_experts(config, checkpoint, prefix);
    return torch;
  }
  std::string names = first_tensor(family, config, family.torch_naming(prefixes.front()));
  if (family.has_paddle_layout) {
    names += " nor " + first_tensor(family, config, {CheckpointLayout::kPaddle, "ernie."});
  }
  throw_error(ErrorCode::kNotFound, "the checkpoint has no tensor ", names, ".");
}

/// Of several the last that is there; the first where none is.
std::string detect_head(const Checkpoint& checkpoint, const std::vector<const char*>& names) {
  std::string out = names.front();
  for (const char* name : names) {
    if (has_weight(checkpoint, name)) out = name;
  }
  return out;
}

}  // namespace

TensorNaming detect_naming(const ModelConfig& config, const Checkpoint& checkpoint) {
  const Family* family = find_family(config.model_type);
  HEADRACE_CHECK(family != nullptr, config.model_type);
  if (const Wrapper* wrapper = find_wrapper(config.wrapper)) {
    TensorNaming out = detect_decoder(*family, config, checkpoint, wrapper->prefixes);
    out.head = detect_head(checkpoint, wrapper->heads);
    return out;
  }
  const VisionFamily* vision = family->vision;
  if (vision == nullptr) {
    std::vector<const char*> prefixes = family->prefixes;
    if (!family->is_encoder()) prefixes.insert(prefixes.end(), {"ernie.", ""});
    return detect_decoder(*family, config, checkpoint, prefixes);
  }
  TensorNaming out = detect_decoder(*family, config, checkpoint, vision->text_prefixes);
  out.head = detect_head(checkpoint, vision->heads);
  const auto first = [&](const char* prefix) {
    out.vision = prefix;
    return vision->list(config, out).patches.matrix.parts.front().name;
  };
  for (const char* prefix : vision->prefixes) {
    if (has_weight(checkpoint, first(prefix))) return out;
  }
  throw_error(ErrorCode::kNotFound, "the checkpoint has no tensor ",
              first(vision->prefixes.front()), ".");
}

bool head_if_stored(const ModelConfig& config) {
  if (!config.wrapper.empty()) return true;  // its tie_word_embeddings are at odds
  const Family* family = find_family(config.model_type);
  return family != nullptr && family->head_if_stored;
}

bool holds_head(const ModelConfig& config, const Checkpoint& checkpoint) {
  const TensorNaming naming = detect_naming(config, checkpoint);
  const bool is_whole = !naming.prefix.empty();
  return (is_whole && !head_if_stored(config)) || has_weight(checkpoint, naming.head);
}

namespace {

/// Whether `b` holds a's numbers bit for bit with rows and columns exchanged.
bool is_transposed(const CheckpointTensor& a, const CheckpointTensor& b) {
  constexpr int64_t kTile = 64;
  const int64_t rows = a.shape[0], cols = a.shape[1];
  const size_t element = dtype_size(a.dtype);
  const auto at = [element](const CheckpointTensor& tensor, int64_t index) {
    return static_cast<const std::byte*>(tensor.data) + static_cast<size_t>(index) * element;
  };
  for (int64_t row = 0; row < rows; row += kTile) {
    for (int64_t col = 0; col < cols; ++col) {
      for (int64_t r = row; r < std::min(row + kTile, rows); ++r) {
        if (std::memcmp(at(a, r * cols + col), at(b, col * rows + r), element) != 0) return false;
      }
    }
  }
  return true;
}

bool is_same_matrix(const CheckpointTensor& embedding, const CheckpointTensor& head,
                    CheckpointLayout layout) {
  if (embedding.dtype != head.dtype || embedding.bytes != head.bytes) return false;
  if (embedding.shape == head.shape) {
    return std::memcmp(embedding.data, head.data, head.bytes) == 0;
  }
  const std::vector<int64_t> turned(embedding.shape.rbegin(), embedding.shape.rend());
  return layout == CheckpointLayout::kPaddle && turned.size() == 2 && head.shape == turned &&
         is_transposed(embedding, head);
}

}  // namespace

namespace {

std::string embedding_tensor(const ModelConfig& config, const TensorNaming& naming) {
  const Family* family = find_family(config.model_type);
  HEADRACE_CHECK(family != nullptr, config.model_type);
  return str_cat(naming.prefix, family->embedding, ".weight");
}

}  // namespace

bool holds_other_head(const ModelConfig& config, const Checkpoint& checkpoint) {
  const TensorNaming naming = detect_naming(config, checkpoint);
  const CheckpointTensor* head = checkpoint.find(naming.head);
  if (head == nullptr) return has_weight(checkpoint, naming.head);
  const CheckpointTensor* embedding = checkpoint.find(embedding_tensor(config, naming));
  return embedding != nullptr && !is_same_matrix(*embedding, *head, naming.layout);
}

TensorNaming likely_naming(const ModelConfig& config) {
  const Family* family = find_family(config.model_type);
  TensorNaming out{config.layout, config.layout == CheckpointLayout::kPaddle ? "ernie." : "model."};
  if (const Wrapper* wrapper = find_wrapper(config.wrapper)) {
    out.prefix = wrapper->prefixes.front();
    out.head = wrapper->heads.front();
    return out;
  }
  if (family != nullptr && out.layout == CheckpointLayout::kTorch) {
    out = family->torch_naming(family->prefixes.front());
  }
  if (family == nullptr || family->vision == nullptr) return out;
  if (out.layout == CheckpointLayout::kTorch) out.prefix = family->vision->text_prefixes.front();
  out.vision = family->vision->prefixes.front();
  out.head = family->vision->heads.front();
  return out;
}

namespace {

/// The layers behind pooling, the first of which reads [n, H].
std::vector<HeadLayerSources> list_pool_head(const ModelConfig& config,
                                             const TensorNaming& naming) {
  std::vector<HeadLayerSources> out;
  int64_t inputs = config.hidden_size;
  for (const HeadLayer& layer : config.pool_head.layers) {
    TensorNaming own = naming;
    if (!layer.is_in_body) own.prefix.clear();
    const LayerNaming names(own, str_cat("pool_head.", out.size(), "."), "");
    HeadLayerSources& sources = out.emplace_back();
    sources.linear = names.linear("linear", {{layer.module, layer.outputs}}, inputs, layer.bias);
    sources.linear.matrix.adaptable = false;
    sources.activation = layer.activation;
    if (!layer.norm.empty()) {
      sources.norm = list_norm(config, names, "norm", layer.norm, layer.outputs);
    }
    inputs = layer.outputs;
  }
  return out;
}

/// ModelSources::adapter_parts of those layers.
int64_t count_parts(const std::vector<LayerSources>& layers) {
  int64_t most = 1;
  for (const LayerSources& layer : layers) {
    for (const MatrixSource* source : layer.matrices()) {
      if (source->adaptable) most = std::max(most, adapter_parts(*source));
    }
  }
  return most;
}

/// The same of `sources`, whose layers are named so.
int64_t count_adapter_parts(const Family& family, const ModelConfig& config,
                            const TensorNaming& naming, const ModelSources& sources) {
  if (naming.layout == CheckpointLayout::kTorch) return count_parts(sources.layers);
  std::vector<LayerSources> layers;
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    const TensorNaming torch{CheckpointLayout::kTorch, "model."};
    layers.push_back(family.list_layer(config, LayerNaming(torch, layer)));
  }
  return count_parts(layers);
}

}  // namespace

ModelSources list_sources(const ModelConfig& config, const TensorNaming& naming,
                          const Quantization& quantization) {
  const Family* family = find_family(config.model_type);
  HEADRACE_CHECK(family != nullptr, config.model_type);
  const int64_t vocab = config.vocab_size, hidden = config.hidden_size;
  const StoredMethod method = config.stored_quantization.method;
  const bool stored = method != StoredMethod::kNone && !is_numbers(method);
  const bool own_order = config.stored_quantization.own_order;
  ModelSources out;
  out.embedding = {
      .name = "embedding",
      .parts = {{embedding_tensor(config, naming), vocab}},
      .k = hidden,
      .use = config.tie_word_embeddings ? WeightUse::kTiedEmbedding : WeightUse::kEmbedding,
      .role = MatrixRole::kVocabulary};
  if (config.tie_word_embeddings) out.embedding.quant = head_format(quantization);
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    const LayerNaming layer_naming(naming, layer);
    LayerSources& sources = out.layers.emplace_back(family->list_layer(config, layer_naming));
    for (MatrixSource* source : sources.matrices()) {
      if (source->role != MatrixRole::kLinear) continue;
      source->quant = likely_format(config.stored_quantization, quantization, source->experts > 1);
      if (source->quant.float4 && source->k % kFloat4Format.group_size != 0) source->quant = {};
      source->whole_inputs = own_order && source->experts == 1;
    }
  }
  if (config.per_layer_input > 0) {
    HEADRACE_CHECK(family->list_per_layer != nullptr, config.model_type);
    out.per_layer = family->list_per_layer(config, naming);
    out.per_layer->projection.quant = layer_format(quantization);
  }
  if (const Wrapper* wrapper = find_wrapper(config.wrapper)) {
    out.ignored.assign(wrapper->ignored.begin(), wrapper->ignored.end());
  }
  for (const LayerSources& layer : out.layers) {
    out.ignored.insert(out.ignored.end(), layer.ignored.begin(), layer.ignored.end());
  }
  if (config.uses_mtp) {
    HEADRACE_CHECK(family->list_mtp != nullptr, config.model_type);
    out.mtp = family->list_mtp(config, naming);
    for (MatrixSource* source : out.mtp->layer.matrices()) {
      source->adaptable = false;
      if (source->role != MatrixRole::kLinear) continue;
      if (!stored) source->quant = layer_format(quantization);
      source->whole_inputs = own_order && source->experts == 1;
    }
  }
  if (config.vision) {
    out.vision = family->vision->list(config, naming);
    for (MatrixSource* source : out.vision->linears()) source->quant = tower_format(quantization);
  }
  number_sites(out);
  out.adapter_parts = count_adapter_parts(*family, config, naming, out);
  out.final_norm.weight = {
      .name = "final_norm",
      .parts = {{str_cat(naming.prefix, family->final_norm, ".weight"), hidden}},
      .offset = config.norm_offset,
      .is_norm = true,
      .is_float = config.norm_offset != 0.0f};
  out.pool_head = list_pool_head(config, naming);
  if (family->is_encoder()) family->list_ends(config, naming, out);
  if (!config.tie_word_embeddings) {
    out.head = {.name = "head",
                .parts = {{naming.head, vocab}},
                .k = hidden,
                .transposed = naming.layout == CheckpointLayout::kPaddle,
                .quant = head_format(quantization),
                .role = MatrixRole::kVocabulary};
  }
  return out;
}

namespace {

void require_mtp(const MtpSources& mtp, const Checkpoint& checkpoint) {
  const std::string& first = mtp.join.parts.front().name;
  if (has_weight(checkpoint, first)) return;
  throw_error(ErrorCode::kNotFound, "speculative method mtp needs the model's MTP block, but the ",
              "checkpoint has no tensor ", first,
              ": load one that has it, or use ngram or draft_model.");
}

}  // namespace

ModelSources checkpoint_sources(const ModelConfig& config, const Checkpoint& checkpoint,
                                const Quantization& quantization) {
  TensorNaming naming = detect_naming(config, checkpoint);
  if (config.uses_mtp) naming.mtp_experts = detect_mtp_experts(config, checkpoint);
  ModelSources out = list_sources(config, naming, quantization);
  if (out.mtp) require_mtp(*out.mtp, checkpoint);
  attach_codes(config.stored_quantization, checkpoint, quantization, out);
  check_sources(out, checkpoint, mtp_tensors(config));
  return out;
}

}  // namespace headrace
