#include "model/weight_sources.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "model/expect_tensor.h"
#include "model/families/family.h"
#include "model/json.h"
#include "model/stored_layers.h"

namespace headrace {

namespace {

int64_t total(const std::vector<StoredPart>& parts) {
  int64_t n = 0;
  for (const StoredPart& part : parts) n += part.n;
  return n;
}

template <class Source>
std::vector<const Source*> present(std::initializer_list<const Source*> sources) {
  std::vector<const Source*> out;
  for (const Source* source : sources) {
    if (!source->empty()) out.push_back(source);
  }
  return out;
}

VectorSource norm(const std::string& name, const std::string& module, int64_t n) {
  return {.name = name, .parts = {{module + ".weight", n}}, .is_norm = true};
}

/// The projections of one layer in one layout.
class LayerLister {
 public:
  LayerLister(const ModelConfig& config, const TensorNaming& naming, int32_t layer)
      : config_(config),
        paddle_(naming.layout == CheckpointLayout::kPaddle),
        name_("layers." + std::to_string(layer) + "."),
        stem_(naming.prefix + name_) {}

  LayerSources list() const {
    const int64_t hidden = config_.hidden_size, wide = config_.intermediate_size;
    const int64_t q = int64_t{config_.num_heads} * config_.head_dim;
    const int64_t kv = int64_t{config_.num_kv_heads} * config_.head_dim;
    const std::vector<StoredPart> qkv =
        paddle_ ? std::vector<StoredPart>{{"self_attn.qkv_proj", q + 2 * kv}}
                : std::vector<StoredPart>{
                      {"self_attn.q_proj", q}, {"self_attn.k_proj", kv}, {"self_attn.v_proj", kv}};
    // up_gate_proj holds the gate first, whatever its name says.
    const std::vector<StoredPart> gate_up =
        paddle_ ? std::vector<StoredPart>{{"mlp.up_gate_proj", 2 * wide}}
                : std::vector<StoredPart>{{"mlp.gate_proj", wide}, {"mlp.up_proj", wide}};
    const std::vector<StoredPart> o{{"self_attn.o_proj", hidden}};
    const std::vector<StoredPart> down{{"mlp.down_proj", hidden}};

    LayerSources out;
    out.input_norm = norm(name_ + "input_norm", stem_ + "input_layernorm", hidden);
    out.mlp_norm = norm(name_ + "mlp_norm", stem_ + "post_attention_layernorm", hidden);
    if (config_.qk_norm) {
      out.attention_norm_q = norm(name_ + "q_norm", stem_ + "self_attn.q_norm", config_.head_dim);
      out.attention_norm_k = norm(name_ + "k_norm", stem_ + "self_attn.k_norm", config_.head_dim);
    }
    out.qkv = matrix("qkv", qkv, hidden, WeightUse::kLinear);
    out.o = matrix("o", o, q, WeightUse::kLinear);
    out.gate_up = matrix("gate_up", gate_up, hidden, WeightUse::kGateUp);
    out.down = matrix("down", down, wide, WeightUse::kLinear);
    if (config_.qkv_bias) out.qkv_bias = bias("qkv", qkv);
    if (config_.o_bias) out.o_bias = bias("o", o);
    if (config_.mlp_bias) {
      out.gate_up_bias = bias("gate_up", gate_up);
      out.down_bias = bias("down", down);
    }
    return out;
  }

 private:
  MatrixSource matrix(const char* name, const std::vector<StoredPart>& modules, int64_t k,
                      WeightUse use) const {
    return {.name = name_ + name,
            .parts = named(modules, ".weight"),
            .k = k,
            .transposed = paddle_,
            .use = use};
  }

  VectorSource bias(const char* matrix, const std::vector<StoredPart>& modules) const {
    return {.name = name_ + matrix + "_bias", .parts = named(modules, ".bias")};
  }

  std::vector<StoredPart> named(std::vector<StoredPart> modules, const char* kind) const {
    for (StoredPart& part : modules) part.name = stem_ + part.name + kind;
    return modules;
  }

  const ModelConfig& config_;
  bool paddle_;
  std::string name_;  // of the layer in this program
  std::string stem_;  // and in the checkpoint
};

/// Compares the sources with what a checkpoint holds.
class SourceChecker {
 public:
  explicit SourceChecker(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  void expect(const std::string& name, const std::vector<int64_t>& shape) {
    const DType dtype = expect_tensor(checkpoint_, name, shape).dtype;
    if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16 &&
        dtype != DType::kF64) {
      throw_error(ErrorCode::kUnsupported, "tensor ", name, " is stored as ", dtype_name(dtype),
                  ": this build loads float32, bfloat16, float16 and float64 weights.");
    }
    expected_.insert(name);
  }

  /// Tensors that were checked when they were found.
  void accept(const std::vector<std::string>& names) {
    expected_.insert(names.begin(), names.end());
  }

  void refuse_others(bool tied) const {
    constexpr size_t kShownNames = 3;
    std::string names;
    size_t count = 0;
    for (const CheckpointTensor& tensor : checkpoint_.tensors()) {
      if (expected_.contains(tensor.name) || is_ignored(tensor.name, tied)) continue;
      if (++count <= kShownNames) names += (count > 1 ? ", " : "") + in_quotes(tensor.name);
    }
    if (count == 0) return;
    throw_error(ErrorCode::kUnsupported, "the checkpoint has ", count,
                " tensors that this model has no place for: ", names,
                count > kShownNames ? ", ..." : "", ".");
  }

 private:
  static bool is_ignored(std::string_view name, bool tied) {
    if (name.ends_with("rotary_emb.inv_freq")) return true;  // recomputed from the config
    if (tied && name == "lm_head.weight") return true;       // a copy of the embedding
    for (const std::string_view prefix : {"model.", "ernie."}) {
      // The layers that draft several tokens at once are not part of the model proper.
      if (name.starts_with(prefix) && name.substr(prefix.size()).starts_with("mtp_")) return true;
    }
    return false;
  }

  const Checkpoint& checkpoint_;
  std::set<std::string, std::less<>> expected_;
};

}  // namespace

int64_t MatrixSource::n() const noexcept { return total(parts); }

int64_t VectorSource::n() const noexcept { return total(parts); }

std::vector<const MatrixSource*> LayerSources::matrices() const {
  return present({&qkv, &o, &gate_up, &down});
}

std::vector<const VectorSource*> LayerSources::vectors() const {
  return present({&input_norm, &attention_norm_q, &attention_norm_k, &mlp_norm, &qkv_bias, &o_bias,
                  &gate_up_bias, &down_bias});
}

std::vector<const MatrixSource*> ModelSources::matrices() const {
  std::vector<const MatrixSource*> out = present({&embedding, &head});
  for (const LayerSources& layer : layers) {
    for (const MatrixSource* source : layer.matrices()) out.push_back(source);
  }
  return out;
}

std::vector<const VectorSource*> ModelSources::vectors() const {
  std::vector<const VectorSource*> out = present({&final_norm});
  for (const LayerSources& layer : layers) {
    for (const VectorSource* source : layer.vectors()) out.push_back(source);
  }
  return out;
}

TensorNaming detect_naming(const ModelConfig& config, const Checkpoint& checkpoint) {
  const Family* family = find_family(config.model_type);
  const bool paddle_known = family != nullptr && family->has_paddle_layout;
  for (const char* prefix : {"model.", "ernie."}) {
    const std::string attention = std::string(prefix) + "layers.0.self_attn.";
    if (checkpoint.find(attention + "qkv_proj.weight") != nullptr) {
      if (!paddle_known) {
        throw_error(ErrorCode::kUnsupported, "the checkpoint has the fused tensor ", attention,
                    "qkv_proj.weight, a layout that ", config.model_type, " has not.");
      }
      return {CheckpointLayout::kPaddle, prefix};
    }
    bool has_q = false;
    for (const char* kind : {"weight", "qweight", "weight_packed"}) {
      has_q = has_q || checkpoint.find(str_cat(attention, "q_proj.", kind)) != nullptr;
    }
    if (!has_q) continue;
    if (std::string_view(prefix) == "ernie.") {
      throw_error(ErrorCode::kUnsupported, "the checkpoint has ", attention,
                  "q_proj.weight: Paddle's layout without fused qkv_proj is not supported.");
    }
    return {CheckpointLayout::kTorch, prefix};
  }
  throw_error(ErrorCode::kNotFound,
              "the checkpoint has no tensor model.layers.0.self_attn.q_proj.weight",
              paddle_known ? " nor ernie.layers.0.self_attn.qkv_proj.weight." : ".");
}

TensorNaming likely_naming(const ModelConfig& config) {
  return {config.layout, config.layout == CheckpointLayout::kPaddle ? "ernie." : "model."};
}

ModelSources list_sources(const ModelConfig& config, const TensorNaming& naming,
                          const Quantization& quantization) {
  const int64_t vocab = config.vocab_size, hidden = config.hidden_size;
  const bool stored = config.stored_quantization.method != StoredMethod::kNone;
  ModelSources out;
  out.embedding = {
      .name = "embedding",
      .parts = {{naming.prefix + "embed_tokens.weight", vocab}},
      .k = hidden,
      .use = config.tie_word_embeddings ? WeightUse::kTiedEmbedding : WeightUse::kEmbedding};
  if (config.tie_word_embeddings) out.embedding.quant = head_format(quantization);
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    LayerSources& sources = out.layers.emplace_back(LayerLister(config, naming, layer).list());
    for (MatrixSource* source : {&sources.qkv, &sources.o, &sources.gate_up, &sources.down}) {
      source->quant =
          stored ? likely_format(config.stored_quantization) : layer_format(quantization);
    }
  }
  out.final_norm = norm("final_norm", naming.prefix + "norm", hidden);
  if (!config.tie_word_embeddings) {
    out.head = {.name = "head",
                .parts = {{"lm_head.weight", vocab}},
                .k = hidden,
                .transposed = naming.layout == CheckpointLayout::kPaddle,
                .quant = head_format(quantization)};
  }
  return out;
}

ModelSources checkpoint_sources(const ModelConfig& config, const Checkpoint& checkpoint,
                                const Quantization& quantization) {
  ModelSources out = list_sources(config, detect_naming(config, checkpoint), quantization);
  attach_codes(config.stored_quantization, checkpoint, out);
  check_sources(out, checkpoint);
  return out;
}

void check_sources(const ModelSources& sources, const Checkpoint& checkpoint) {
  SourceChecker checker(checkpoint);
  for (const MatrixSource* source : sources.matrices()) {
    for (const StoredPart& part : source->parts) {
      if (part.codes != nullptr) {
        checker.accept(part.codes->tensors());
        continue;
      }
      checker.expect(part.name, source->transposed ? std::vector<int64_t>{source->k, part.n}
                                                   : std::vector<int64_t>{part.n, source->k});
    }
  }
  for (const VectorSource* source : sources.vectors()) {
    for (const StoredPart& part : source->parts) checker.expect(part.name, {part.n});
  }
  checker.refuse_others(sources.head.empty());
}

}  // namespace headrace
