#include "model/decoder/scratch.h"

#include "base/check.h"

namespace headrace {

size_t count_keeping(const ModelSources& sources) {
  size_t out = sources.layers.size();
  const auto keeps = [](const LayerSources& layer) {
    return layer.mixer != nullptr &&
           (layer.mixer->cache_rows().num_kv_heads > 0 || !layer.mixer->state().empty());
  };
  while (out > 1 && !keeps(sources.layers[out - 1])) --out;
  return out;
}

namespace {

/// Whether what the layer's feed-forward block reads exists before rows are chosen.
bool keeps_normed(const LayerSources& layer) { return layer.parallel || layer.mixer == nullptr; }

}  // namespace

ScratchSizes scratch_sizes(const ModelConfig& config, const ModelSources& sources,
                           const DecoderOptions& options, DType activation) {
  ScratchSizes out{.limits = {options.max_rows, activation, options.max_loras > 0},
                   .logit_rows = options.max_logit_rows,
                   .hidden = config.hidden_size,
                   .vocab = options.rank.index == 0 ? config.vocab_size : 0,
                   .last_normed = keeps_normed(sources.layers[count_keeping(sources) - 1]),
                   .per_layer = int64_t{config.num_layers} * config.per_layer_input};
  HEADRACE_CHECK(config.ropes.size() <= kMaxRopes, config.ropes.size());
  for (size_t i = 0; i < config.ropes.size(); ++i) out.ropes[i] = config.ropes[i].rotary_dim;
  if (options.rank.count > 1) {
    out.own_vocab = share_vocabulary(config.vocab_size, options.rank).count;
  }
  for (const LayerSources& layer : sources.layers) {
    if (layer.mixer != nullptr) out.mixed = std::max(out.mixed, layer.mixer->mixed_columns());
  }
  if (sources.mtp) {
    out.mixed = std::max(out.mixed, sources.mtp->layer.mixer->mixed_columns());
    out.kept = options.max_kept_rows;
  }
  if (out.limits.loras) {
    out.lora = sources.adapter_parts * round_up<int64_t>(options.max_lora_rank, kLoraRankUnit);
  }
  return out;
}

Scratch lay_out_scratch(const ScratchSizes& sizes, Carver& carver) {
  const int64_t t = sizes.limits.rows, s = sizes.logit_rows;
  const DType activation = sizes.limits.activation;
  Scratch out;
  out.rows.residual = carver.matrix(t, sizes.hidden, activation);
  out.rows.normed = carver.matrix(t, sizes.hidden, activation);
  out.rows.delta = carver.matrix(t, sizes.hidden, activation);
  for (size_t i = 0; i < kMaxRopes; ++i) {
    out.rows.ropes[i] = carver.matrix(t, sizes.ropes[i], DType::kF32);
  }
  out.chosen_residual = carver.matrix(s, sizes.hidden, activation);
  out.chosen_mixed = carver.matrix(s, sizes.mixed, activation);
  out.rows.per_layer = carver.matrix(t, sizes.per_layer, activation);
  out.chosen_per_layer = carver.matrix(s, sizes.per_layer, activation);
  out.chosen_normed = carver.matrix(sizes.last_normed ? s : 0, sizes.hidden, activation);
  out.logits = carver.matrix(s, sizes.vocab, DType::kF32);
  out.rows.mixed = carver.matrix(t, sizes.mixed, activation);
  out.lora = carver.matrix(sizes.limits.loras ? t : 0, sizes.lora, DType::kF32);
  return out;
}

StepRows first_rows(const StepRows& step, int64_t count) {
  StepRows out = step;
  for (TensorView* view : {&out.residual, &out.normed, &out.delta, &out.mixed, &out.per_layer}) {
    *view = view->first_rows(count);
  }
  for (TensorView& rope : out.ropes) rope = rope.first_rows(count);
  return out;
}

StepRows choose_rows(Backend& backend, const Scratch& scratch, const StepRows& all,
                     std::span<const int32_t> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  StepRows chosen = first_rows(scratch.rows, count);
  chosen.residual = scratch.chosen_residual.first_rows(count);
  chosen.mixed = scratch.chosen_mixed.first_rows(count);
  backend.gather_rows(all.residual, rows, chosen.residual);
  backend.gather_rows(all.mixed, rows, chosen.mixed);
  if (all.per_layer.cols() > 0) {
    chosen.per_layer = scratch.chosen_per_layer.first_rows(count);
    backend.gather_rows(all.per_layer, rows, chosen.per_layer);
  }
  if (scratch.chosen_normed.rows() > 0) {
    chosen.normed = scratch.chosen_normed.first_rows(count);
    backend.gather_rows(all.normed, rows, chosen.normed);
  }
  return chosen;
}

void make_rope_tables(Backend& backend, const ModelConfig& config, const StepRows& step) {
  for (size_t i = 0; i < config.ropes.size(); ++i) {
    backend.rope_table(config.ropes[i], step.ropes[i]);
  }
}

}  // namespace headrace
