#include "model/decoder/mtp_block.h"

#include "base/check.h"
#include "model/blocks/join.h"

namespace headrace {

namespace {

struct MtpScratch {
  TensorView joined, kept;
};

MtpScratch lay_out(const ScratchSizes& sizes, Carver& carver) {
  const DType activation = sizes.limits.activation;
  MtpScratch out;
  out.joined = carver.matrix(sizes.limits.rows, 2 * sizes.hidden, activation);
  out.kept = carver.matrix(sizes.kept, sizes.hidden, activation);
  return out;
}

}  // namespace

MtpBlock::MtpBlock(Backend& backend, const ModelConfig& config, const MtpSources& sources,
                   WeightReader& reader, const Shared& shared)
    : config_(config),
      shared_(shared),
      embedding_norm_(reader.vector(sources.embedding_norm)),
      hidden_norm_(reader.vector(sources.hidden_norm)),
      join_(reader.matrix(sources.join)),
      layer_(load_layer(backend, reader, sources.layer, config.num_layers)),
      final_norm_(reader.vector(sources.final_norm)) {
  if (!sources.final_norm.empty()) shared_.final_norm = {final_norm_.view, {}};
}

void MtpBlock::measure(const ScratchSizes& sizes, Carver& carver) { lay_out(sizes, carver); }

void MtpBlock::place(const ScratchSizes& sizes, const Scratch& scratch, Carver& carver) {
  const MtpScratch own = lay_out(sizes, carver);
  scratch_ = scratch;
  joined_ = own.joined;
  kept_ = own.kept;
}

void MtpBlock::keep(Backend& backend, std::span<const int32_t> rows, int64_t first) {
  const auto count = static_cast<int64_t>(rows.size());
  backend.gather_rows(scratch_.rows.normed, rows, kept_.rows_from(first, count));
}

TensorView MtpBlock::run(const BlockContext& context, const MtpStep& step, KvCache& cache) {
  const auto count = static_cast<int64_t>(step.batch.token_ids.size());
  HEADRACE_CHECK(
      count >= 1 && count <= joined_.rows() && step.rows.size() == step.batch.token_ids.size(),
      count);
  Backend& backend = context.backend;
  StepBatch batch = step.batch;
  batch.cache = &cache;
  backend.begin_step(batch);
  const StepRows all = first_rows(scratch_.rows, count);
  join_inputs(context, step, all);
  make_rope_tables(backend, config_, all);
  run_norm(context, all.residual, layer_.mixer_norm.view(), all.normed);
  const std::span<const int32_t> wanted = step.batch.logit_rows;
  const TensorView logits = scratch_.logits.first_rows(static_cast<int64_t>(wanted.size()));
  if (wanted.empty()) {
    layer_.mixer->write(context, mixer_rows(layer_, all), cache);
    return logits;
  }
  layer_.mixer->mix(context, mixer_rows(layer_, all), cache);
  const StepRows chosen = choose(backend, all, wanted);
  finish_layer(context, layer_, chosen, shared_.final_norm, shared_.vocabulary.output_matrix());
  shared_.vocabulary.read_logits(backend, chosen.normed, logits);
  return logits;
}

/// residual = what goes into the layer.
void MtpBlock::join_inputs(const BlockContext& context, const MtpStep& step, const StepRows& rows) {
  Backend& backend = context.backend;
  const TensorView joined = joined_.first_rows(rows.rows());
  const int64_t hidden = rows.residual.cols();
  const TensorView& from = step.input == MtpInput::kKept ? kept_ : scratch_.rows.normed;
  backend.gather_rows(from, step.rows, rows.delta);
  shared_.vocabulary.embed(backend, rows.residual);
  shared_.vocabulary.finish_embedding(backend, rows.residual);
  run_norm(context, rows.residual, {embedding_norm_.view, {}}, joined.columns(0, hidden));
  run_norm(context, rows.delta, {hidden_norm_.view, {}}, joined.columns(hidden, hidden));
  backend.linear(joined, *join_, {}, rows.residual);
}

StepRows MtpBlock::choose(Backend& backend, const StepRows& all,
                          std::span<const int32_t> rows) const {
  const auto count = static_cast<int64_t>(rows.size());
  if (count == all.rows()) return all;  // ascending, hence all of them in order
  return choose_rows(backend, scratch_, all, rows);
}

}  // namespace headrace
