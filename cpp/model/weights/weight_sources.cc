#include "model/weights/weight_sources.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/check.h"
#include "model/blocks/attention_block.h"
#include "model/families/family.h"
#include "model/weights/source_checker.h"
#include "model/weights/stored_layers.h"
#include "model/weights/weight_slice.h"

namespace headrace {

namespace {

constexpr std::string_view kHead = "lm_head.weight";

/// Those of the list that the model has.
template <class Out, class Source>
void append_present(const std::vector<Source*>& sources, std::vector<Out*>& out) {
  for (Source* source : sources) {
    if (!source->empty()) out.push_back(source);
  }
}

void number_sites(ModelSources& sources) {
  for (LayerSources& layer : sources.layers) {
    for (MatrixSource* source : layer.matrices()) {
      if (source->adaptable) source->site = sources.num_sites++;
    }
  }
}

}  // namespace

std::vector<MatrixSource*> LayerSources::matrices() {
  std::vector<MatrixSource*> out;
  append_present(mixer->matrices(), out);
  append_present(feed_forward->matrices(), out);
  return out;
}

std::vector<const MatrixSource*> LayerSources::matrices() const {
  std::vector<const MatrixSource*> out;
  append_present(mixer->matrices(), out);
  append_present(feed_forward->matrices(), out);
  return out;
}

std::vector<const VectorSource*> LayerSources::vectors() const {
  std::vector<const VectorSource*> out{&mixer_norm, &feed_forward_norm};
  append_present(mixer->vectors(), out);
  append_present(feed_forward->vectors(), out);
  return out;
}

std::vector<const MatrixSource*> MtpSources::matrices() const {
  std::vector<const MatrixSource*> out{&join};
  append_present(layer.matrices(), out);
  return out;
}

std::vector<const VectorSource*> MtpSources::vectors() const {
  std::vector<const VectorSource*> out{&embedding_norm, &hidden_norm};
  append_present(layer.vectors(), out);
  return out;
}

std::vector<const MatrixSource*> ModelSources::matrices() const {
  std::vector<const MatrixSource*> out;
  append_present(std::vector{&embedding, &head}, out);
  for (const LayerSources& layer : layers) append_present(layer.matrices(), out);
  if (mtp) append_present(mtp->matrices(), out);
  if (vision) append_present(vision->matrices(), out);
  return out;
}

std::vector<const VectorSource*> ModelSources::vectors() const {
  std::vector<const VectorSource*> out{&final_norm};
  for (const LayerSources& layer : layers) append_present(layer.vectors(), out);
  if (mtp) append_present(mtp->vectors(), out);
  if (vision) append_present(vision->vectors(), out);
  return out;
}

namespace {

template <class Sources>
int64_t count_numbers(const Sources& sources) {
  int64_t count = 0;
  for (const MatrixSource* source : sources.matrices()) count += source->numbers();
  for (const VectorSource* source : sources.vectors()) count += source->n();
  return count;
}

}  // namespace

int64_t ModelSources::num_parameters() const {
  return count_numbers(*this) - (mtp ? count_numbers(*mtp) : 0);
}

int64_t ModelSources::active_parameters() const {
  int64_t count = num_parameters();
  if (vision) count -= count_numbers(*vision);
  if (!head.empty()) count -= embedding.numbers() - embedding.k;
  for (const MatrixSource* source : matrices())
    count -= source->numbers() - source->active_numbers();
  return count;
}

namespace {

/// By the shape of the first layer's that has experts.
ExpertLayout detect_experts(const ModelConfig& config, const Checkpoint& checkpoint,
                            const std::string& prefix) {
  const std::vector<bool>& sparse = config.moe.sparse_layers;
  const auto first = std::find(sparse.begin(), sparse.end(), true);
  const CheckpointTensor* fused = checkpoint.find(
      str_cat(prefix, "layers.", first - sparse.begin(), ".mlp.experts.gate_up_proj"));
  if (first == sparse.end() || fused == nullptr || config.moe.vision_width > 0) {
    return ExpertLayout::kSeparate;
  }
  const bool as_used = !fused->shape.empty() && fused->shape.back() == config.hidden_size;
  return as_used ? ExpertLayout::kFused : ExpertLayout::kFusedTransposed;
}

}  // namespace

namespace {

/// A tensor that every checkpoint of the family with that naming has, or codes in its place.
std::string first_tensor(const Family& family, const ModelConfig& config,
                         const TensorNaming& naming) {
  const LayerSources layer = family.list_layer(config, LayerNaming(naming, 0));
  return layer.mixer->matrices().front()->parts.front().name;
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
    const std::string plain = first_tensor(family, config, {CheckpointLayout::kTorch, prefix});
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
    return {CheckpointLayout::kTorch, prefix, detect_experts(config, checkpoint, prefix)};
  }
  std::string names = first_tensor(family, config, {CheckpointLayout::kTorch, prefixes.front()});
  if (family.has_paddle_layout) {
    names += " nor " + first_tensor(family, config, {CheckpointLayout::kPaddle, "ernie."});
  }
  throw_error(ErrorCode::kNotFound, "the checkpoint has no tensor ", names, ".");
}

}  // namespace

TensorNaming detect_naming(const ModelConfig& config, const Checkpoint& checkpoint) {
  const Family* family = find_family(config.model_type);
  HEADRACE_CHECK(family != nullptr, config.model_type);
  const VisionFamily* vision = family->vision;
  if (vision == nullptr) {
    return detect_decoder(*family, config, checkpoint, {"model.", "ernie.", ""});
  }
  TensorNaming out = detect_decoder(*family, config, checkpoint, vision->text_prefixes);
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
  const Family* family = find_family(config.model_type);
  return family != nullptr && family->head_if_stored;
}

bool holds_head(const ModelConfig& config, const Checkpoint& checkpoint) {
  const bool is_whole = !detect_naming(config, checkpoint).prefix.empty();
  return (is_whole && !head_if_stored(config)) || has_weight(checkpoint, kHead);
}

TensorNaming likely_naming(const ModelConfig& config) {
  const Family* family = find_family(config.model_type);
  TensorNaming out{config.layout, config.layout == CheckpointLayout::kPaddle ? "ernie." : "model."};
  if (family == nullptr || family->vision == nullptr) return out;
  if (out.layout == CheckpointLayout::kTorch) out.prefix = family->vision->text_prefixes.front();
  out.vision = family->vision->prefixes.front();
  return out;
}

ModelSources list_sources(const ModelConfig& config, const TensorNaming& naming,
                          const Quantization& quantization) {
  const Family* family = find_family(config.model_type);
  HEADRACE_CHECK(family != nullptr, config.model_type);
  const int64_t vocab = config.vocab_size, hidden = config.hidden_size;
  const StoredMethod method = config.stored_quantization.method;
  const bool stored = method != StoredMethod::kNone && !is_numbers(method);
  ModelSources out;
  out.embedding = {
      .name = "embedding",
      .parts = {{naming.prefix + "embed_tokens.weight", vocab}},
      .k = hidden,
      .use = config.tie_word_embeddings ? WeightUse::kTiedEmbedding : WeightUse::kEmbedding,
      .role = MatrixRole::kVocabulary};
  if (config.tie_word_embeddings) out.embedding.quant = head_format(quantization);
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    const LayerNaming layer_naming(naming, layer);
    LayerSources& sources = out.layers.emplace_back(family->list_layer(config, layer_naming));
    for (MatrixSource* source : sources.matrices()) {
      if (source->role != MatrixRole::kLinear) continue;
      const QuantFormat likely = likely_format(config.stored_quantization, quantization);
      const bool kept = stored || (likely.bits != 0 && source->experts == 1);
      source->quant = kept ? likely : layer_format(quantization);
      source->whole_inputs = config.stored_quantization.own_order && source->experts == 1;
    }
  }
  if (config.uses_mtp) {
    HEADRACE_CHECK(family->list_mtp != nullptr, config.model_type);
    out.mtp = family->list_mtp(config, naming);
    for (MatrixSource* source : out.mtp->layer.matrices()) {
      source->adaptable = false;
      if (!stored) source->quant = layer_format(quantization);
    }
  }
  if (config.vision) {
    out.vision = family->vision->list(config, naming);
    for (MatrixSource* source : out.vision->linears()) source->quant = tower_format(quantization);
  }
  number_sites(out);
  out.final_norm = {
      .name = "final_norm", .parts = {{naming.prefix + "norm.weight", hidden}}, .is_norm = true};
  if (!config.tie_word_embeddings) {
    out.head = {.name = "head",
                .parts = {{std::string(kHead), vocab}},
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
  if (checkpoint.find(first) != nullptr) return;
  throw_error(ErrorCode::kNotFound, "speculative method mtp needs the model's MTP block, but the ",
              "checkpoint has no tensor ", first,
              ": load one that has it, or use ngram or draft_model.");
}

}  // namespace

SourceRange share_vocabulary(int64_t vocab_size, const RankPlace& place) {
  return share_range(vocab_size, 1, place, "a vocabulary");
}

void share_sources(const RankPlace& place, ModelSources& sources) {
  if (place.count == 1) return;
  sources.rank = place;
  const SourceRange tokens = share_vocabulary(sources.embedding.n(), place);
  slice_rows(sources.embedding, {tokens});
  slice_rows(sources.head, {tokens});
  const auto share_layer = [&](LayerSources& layer) {
    layer.mixer->share(place);
    layer.feed_forward->share(place);
  };
  for (LayerSources& layer : sources.layers) share_layer(layer);
  if (sources.mtp) share_layer(sources.mtp->layer);
  if (place.index > 0) sources.vision.reset();
}

ModelConfig share_config(const RankPlace& place, const ModelConfig& config) {
  ModelConfig out = config;
  if (place.count == 1) return out;
  out.num_kv_heads =
      static_cast<int32_t>(share_kv_heads(config.num_heads, config.num_kv_heads, place).count);
  out.num_heads = config.num_heads / place.count;
  return out;
}

ModelSources checkpoint_sources(const ModelConfig& config, const Checkpoint& checkpoint,
                                const Quantization& quantization) {
  ModelSources out = list_sources(config, detect_naming(config, checkpoint), quantization);
  if (out.mtp) require_mtp(*out.mtp, checkpoint);
  attach_codes(config.stored_quantization, checkpoint, quantization, out);
  check_sources(out, checkpoint);
  return out;
}

}  // namespace headrace
