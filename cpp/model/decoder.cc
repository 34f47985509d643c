#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "model/lora_config.h"
#include "model/scratch.h"
#include "model/step_loras.h"
#include "model/weight_loader.h"
#include "model/weight_sources.h"

namespace headrace {

namespace {

constexpr int32_t kMaxRows = 1 << 20;

struct LayerWeights {
  DeviceVector input_norm, mlp_norm, q_norm, k_norm;
  std::unique_ptr<PackedWeight> qkv, o, gate_up, down;
  DeviceVector qkv_bias, o_bias, gate_up_bias, down_bias;
  int32_t window = 0;
};

LayerWeights load_layer(WeightReader& reader, const LayerSources& sources) {
  LayerWeights layer;
  layer.input_norm = reader.vector(sources.input_norm);
  layer.qkv = reader.matrix(sources.qkv);
  layer.qkv_bias = reader.vector(sources.qkv_bias);
  layer.q_norm = reader.vector(sources.attention_norm_q);
  layer.k_norm = reader.vector(sources.attention_norm_k);
  layer.o = reader.matrix(sources.o);
  layer.o_bias = reader.vector(sources.o_bias);
  layer.mlp_norm = reader.vector(sources.mlp_norm);
  layer.gate_up = reader.matrix(sources.gate_up);
  layer.gate_up_bias = reader.vector(sources.gate_up_bias);
  layer.down = reader.matrix(sources.down);
  layer.down_bias = reader.vector(sources.down_bias);
  return layer;
}

void check_options(const DecoderOptions& options) {
  const auto check = [](const char* name, int32_t value, int32_t min, int32_t max) {
    if (value < min || value > max) {
      throw_error(ErrorCode::kInvalidArgument, name, " is ", value, ": it must be from ", min,
                  " to ", max, ".");
    }
  };
  check("max_rows", options.max_rows, 1, kMaxRows);
  check("max_logit_rows", options.max_logit_rows, 1, kMaxRows);
  check("max_loras", options.max_loras, 0, kMaxLoras);
  check("max_lora_rank", options.max_lora_rank, 1, kMaxLoraRank);
}

}  // namespace

struct Decoder::Impl {
  Impl(Backend& backend_in, const ModelConfig& config_in, const ModelSources& sources,
       WeightReader& reader, const DecoderOptions& options_in);

  /// A layer's linear, its bias, and what its adapters are found by.
  struct Linear {
    LoraLinear lora;
    const PackedWeight& weight;
    const TensorView& bias;
  };

  /// A step's ops; with `whole` down to the logits of all rows.
  struct Pass {
    Scratch step;
    KvCache& cache;
    bool whole;
  };

  TensorView forward(const StepBatch& batch, KvCache& cache);
  TensorView logits(std::span<const int32_t> rows);
  void run(const Pass& pass);
  void read_logits(const Scratch& step, const TensorView& out);
  void attend(size_t index, KvCache& cache, const Scratch& step);
  void feed_forward(size_t index, const Scratch& step);
  void add_and_norm(size_t index, const Linear& linear, const TensorView& x, const TensorView& norm,
                    const Scratch& step);
  void gate_and_up(size_t index, const Scratch& step);
  void add_loras(size_t index, LoraLinear linear, const TensorView& x, const TensorView& out);
  const PackedWeight& output_matrix() const { return head ? *head : *embedding; }
  Scratch views(int64_t rows) const;
  void choose_rows(std::span<const int32_t> rows, Scratch& step);

  Backend& backend;
  ModelConfig config;
  DecoderOptions options;
  std::unique_ptr<PackedWeight> embedding, head;  // no head: the embedding is tied
  std::vector<LayerWeights> layers;
  DeviceVector final_norm;
  size_t weight_bytes = 0, adopted_bytes = 0;
  int64_t num_parameters = 0;
  Backend::Buffer scratch_memory;
  Scratch scratch;
  StepLoras loras;
  int64_t last_rows = 0;  // of the last step
};

Decoder::Impl::Impl(Backend& backend_in, const ModelConfig& config_in, const ModelSources& sources,
                    WeightReader& reader, const DecoderOptions& options_in)
    : backend(backend_in),
      config(config_in),
      options((check_options(options_in), options_in)),
      loras(options_in.max_rows, options_in.max_loras) {
  HEADRACE_CHECK(config.layer_window.size() == static_cast<size_t>(config.num_layers));

  const size_t bytes_before = backend.bytes_in_use();
  embedding = reader.matrix(sources.embedding);
  for (const LayerSources& layer : sources.layers) {
    layers.push_back(load_layer(reader, layer));
    layers.back().window = config.layer_window[layers.size() - 1];
  }
  final_norm = reader.vector(sources.final_norm);
  head = reader.matrix(sources.head);
  adopted_bytes = reader.adopted_bytes();
  weight_bytes = backend.bytes_in_use() - bytes_before + adopted_bytes;
  for (const MatrixSource* source : sources.matrices()) num_parameters += source->n() * source->k;
  for (const VectorSource* source : sources.vectors()) num_parameters += source->n();

  const DType activation = backend.activation_dtype(options.storage);
  size_t bytes = 0;
  lay_out_scratch(config, options, activation, nullptr, &bytes);
  scratch_memory = backend.allocate(bytes);
  scratch = lay_out_scratch(config, options, activation, scratch_memory.data, &bytes);
}

TensorView Decoder::Impl::forward(const StepBatch& batch_in, KvCache& cache) {
  StepBatch batch = batch_in;
  const auto rows = static_cast<int64_t>(batch.token_ids.size());
  HEADRACE_CHECK(rows >= 1 && rows <= options.max_rows, rows);
  const KvCacheSpec& kv = cache.spec();
  HEADRACE_CHECK(kv.num_layers == config.num_layers && kv.num_kv_heads == config.num_kv_heads &&
                 kv.head_dim == config.head_dim);

  const bool whole = batch.logit_rows.size() == batch.token_ids.size();
  if (whole && rows <= options.max_logit_rows) {
    batch.room = std::min(options.max_rows, options.max_logit_rows);
  }
  last_rows = rows;
  loras.begin(batch.seqs);
  backend.begin_step(batch);
  const Pass pass{views(backend.step_rows(batch)), cache, batch.room > 0};
  backend.run_step(this, cache, [this, &pass] { run(pass); });
  return pass.whole ? pass.step.logits.first_rows(rows) : logits(batch.logit_rows);
}

void Decoder::Impl::run(const Pass& pass) {
  const Scratch& step = pass.step;
  backend.embed(*embedding, step.residual);
  backend.rope_table(config.rope, step.rope);
  backend.rms_norm(step.residual, layers[0].input_norm.view, config.rms_norm_eps, step.normed);
  for (size_t i = 0; i < layers.size(); ++i) {
    attend(i, pass.cache, step);
    if (i + 1 < layers.size()) feed_forward(i, step);
  }
  if (pass.whole) read_logits(step, step.logits.first_rows(step.residual.rows()));
}

// Behind the last attention only the rows that want logits matter.
TensorView Decoder::Impl::logits(std::span<const int32_t> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  HEADRACE_CHECK(count <= options.max_logit_rows && count <= last_rows, count);
  Scratch step = views(last_rows);
  step.logits = step.logits.first_rows(count);
  if (count == 0) return step.logits;
  choose_rows(rows, step);
  loras.choose(rows);
  read_logits(step, step.logits);
  return step.logits;
}

void Decoder::Impl::read_logits(const Scratch& step, const TensorView& out) {
  feed_forward(layers.size() - 1, step);
  backend.linear(step.normed, output_matrix(), {}, out);
}

/// mixed = attention(normed), before its output projection.
void Decoder::Impl::attend(size_t index, KvCache& cache, const Scratch& step) {
  const LayerWeights& layer = layers[index];
  const auto layer_number = static_cast<int32_t>(index);
  const int32_t d = config.head_dim;
  const QkvSpec qkv{.num_heads = config.num_heads,
                    .num_kv_heads = config.num_kv_heads,
                    .head_dim = d,
                    .q_norm = layer.q_norm.view,
                    .k_norm = layer.k_norm.view,
                    .norm_eps = config.rms_norm_eps};
  const AttentionSpec attention{.num_heads = config.num_heads,
                                .num_kv_heads = config.num_kv_heads,
                                .head_dim = d,
                                .scale = 1.0f / std::sqrt(static_cast<float>(d)),
                                .window = layer.window};
  backend.expect(*layer.o);
  backend.linear(step.normed, *layer.qkv, layer.qkv_bias.view, step.qkv);
  add_loras(index, &LoraLayer::qkv, step.normed, step.qkv);
  backend.rope_kv_write(step.qkv, qkv, config.rope, step.rope, cache, layer_number);
  const TensorView q = step.qkv.columns(0, int64_t{config.num_heads} * d);
  backend.attention(q, attention, cache, layer_number, step.mixed);
}

/// residual += o(mixed); residual += down(silu(gate(norm(residual))) * up(norm(residual))); normed
/// = the residual's norm for the next layer, or for the head.
void Decoder::Impl::feed_forward(size_t index, const Scratch& step) {
  const LayerWeights& layer = layers[index];
  const bool last = index + 1 == layers.size();
  const DeviceVector& next_norm = last ? final_norm : layers[index + 1].input_norm;
  backend.expect(*layer.gate_up);
  add_and_norm(index, {&LoraLayer::o, *layer.o, layer.o_bias.view}, step.mixed, layer.mlp_norm.view,
               step);
  backend.expect(*layer.down);
  gate_and_up(index, step);
  backend.expect(last ? output_matrix() : *layers[index + 1].qkv);
  add_and_norm(index, {&LoraLayer::down, *layer.down, layer.down_bias.view}, step.gated,
               next_norm.view, step);
}

// Rows without an adapter get the fused op's bits either way.
void Decoder::Impl::add_and_norm(size_t index, const Linear& linear, const TensorView& x,
                                 const TensorView& norm, const Scratch& step) {
  const float eps = config.rms_norm_eps;
  if (loras.groups(index, linear.lora).empty()) {
    backend.linear_add_rms_norm(
        {x, linear.weight, linear.bias, step.delta, step.residual, norm, eps, step.normed});
    return;
  }
  backend.linear(x, linear.weight, linear.bias, step.delta);
  add_loras(index, linear.lora, x, step.delta);
  backend.add_rms_norm(step.residual, step.delta, norm, eps, step.normed);
}

// What adapters add comes before the SiLU. Rows without one get the fused op's bits either way.
void Decoder::Impl::gate_and_up(size_t index, const Scratch& step) {
  const LayerWeights& layer = layers[index];
  const TensorView bias = layer.gate_up_bias.view;
  if (loras.groups(index, &LoraLayer::gate_up).empty()) {
    backend.linear_silu_mul(step.normed, *layer.gate_up, bias, step.gated);
    return;
  }
  backend.linear(step.normed, *layer.gate_up, bias, step.gate_up);
  add_loras(index, &LoraLayer::gate_up, step.normed, step.gate_up);
  backend.silu_mul(step.gate_up, step.gated);
}

void Decoder::Impl::add_loras(size_t index, LoraLinear linear, const TensorView& x,
                              const TensorView& out) {
  const std::span<const LoraGroup> groups = loras.groups(index, linear);
  if (!groups.empty()) backend.lora(x, groups, scratch.lora, out);
}

Scratch Decoder::Impl::views(int64_t rows) const {
  Scratch step = scratch;
  for (TensorView* view : {&step.residual, &step.normed, &step.delta, &step.rope, &step.qkv,
                           &step.mixed, &step.gated}) {
    *view = view->first_rows(rows);
  }
  if (options.max_loras > 0) step.gate_up = step.gate_up.first_rows(rows);
  return step;
}

// Leaves the step's own rows as they are, for those that are asked for later.
void Decoder::Impl::choose_rows(std::span<const int32_t> rows, Scratch& step) {
  const auto count = static_cast<int64_t>(rows.size());
  for (TensorView* view : {&step.normed, &step.delta, &step.gated}) *view = view->first_rows(count);
  if (options.max_loras > 0) step.gate_up = step.gate_up.first_rows(count);
  if (count == step.residual.rows()) return;  // ascending, hence all of them in order: none later
  step.chosen_residual = step.chosen_residual.first_rows(count);
  step.chosen_mixed = step.chosen_mixed.first_rows(count);
  backend.gather_rows(step.residual, rows, step.chosen_residual);
  backend.gather_rows(step.mixed, rows, step.chosen_mixed);
  step.residual = step.chosen_residual;
  step.mixed = step.chosen_mixed;
}

Decoder::Decoder(Backend& backend, const ModelConfig& config, const Checkpoint* checkpoint,
                 const DecoderOptions& options) {
  if (options.dummy_weights) checkpoint = nullptr;
  HEADRACE_CHECK(options.dummy_weights || checkpoint != nullptr);
  const ModelSources sources =
      checkpoint == nullptr ? list_sources(config, likely_naming(config), options.quantization)
                            : checkpoint_sources(config, *checkpoint, options.quantization);
  WeightLoader loader(backend, checkpoint, options.storage, options.dummy_spread);
  impl_ = std::make_unique<Impl>(backend, config, sources, loader, options);
  if (checkpoint != nullptr) checkpoint->check_unchanged();
}

Decoder::Decoder(Backend& backend, const ModelConfig& config, const ModelSources& sources,
                 WeightReader& reader, const DecoderOptions& options)
    : impl_(std::make_unique<Impl>(backend, config, sources, reader, options)) {}

Decoder::~Decoder() = default;

TensorView Decoder::forward(const StepBatch& batch, KvCache& cache) {
  return impl_->forward(batch, cache);
}

TensorView Decoder::logits(std::span<const int32_t> rows) { return impl_->logits(rows); }

const ModelConfig& Decoder::config() const { return impl_->config; }

size_t Decoder::weight_bytes() const { return impl_->weight_bytes; }

size_t Decoder::adopted_bytes() const { return impl_->adopted_bytes; }

size_t Decoder::scratch_bytes() const { return impl_->scratch_memory.bytes; }

int64_t Decoder::num_parameters() const { return impl_->num_parameters; }

size_t Decoder::bytes_per_step() const {
  return impl_->weight_bytes - (impl_->head ? impl_->embedding->bytes() : 0);
}

size_t Decoder::plan_scratch_bytes(const ModelConfig& config, const DecoderOptions& options,
                                   DType activation) {
  check_options(options);
  size_t bytes = 0;
  lay_out_scratch(config, options, activation, nullptr, &bytes);
  return bytes;
}

size_t Decoder::plan_weight_bytes(const ModelConfig& config, DType storage,
                                  const Quantization& quantization) {
  const ModelSources sources = list_sources(config, likely_naming(config), quantization);
  int64_t bytes = 0, vectors = 0;
  for (const MatrixSource* source : sources.matrices()) {
    const QuantFormat& quant = source->quant;
    const auto element = static_cast<int64_t>(dtype_size(storage));
    // A group has a scale of two bytes.
    bytes += quant.bits == 0 ? source->n() * source->k * element
                             : source->n() * ceil_div(source->k, int64_t{quant.group_size}) *
                                   (quant.group_size * quant.bits / 8 + 2);
  }
  for (const VectorSource* source : sources.vectors()) vectors += source->n();
  return static_cast<size_t>(bytes) + static_cast<size_t>(vectors) * dtype_size(DType::kF32);
}

}  // namespace headrace
