#include "model/decoder/decoder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "model/blocks/join.h"
#include "model/decoder/embedding_tables.h"
#include "model/decoder/layer.h"
#include "model/decoder/mtp_block.h"
#include "model/decoder/per_layer_inputs.h"
#include "model/decoder/pool_head.h"
#include "model/decoder/row_steps.h"
#include "model/decoder/scratch.h"
#include "model/decoder/vocabulary.h"
#include "model/lora/lora_config.h"
#include "model/lora/step_loras.h"

namespace headrace {

namespace {

constexpr int32_t kMaxRows = 1 << 20, kMaxKeptRows = 1 << 24;

size_t scratch_bytes_of(const ScratchSizes& sizes, const ModelSources& sources) {
  Carver carver(nullptr);
  lay_out_scratch(sizes, carver);
  Vocabulary::measure(sizes, carver);
  if (sources.per_layer) PerLayerInputs::measure(sizes, carver);
  PoolHead::measure(sources, sizes, carver);
  if (sources.mtp) MtpBlock::measure(sizes, carver);
  return share_scratch(sources.layers, sources.mtp ? &sources.mtp->layer : nullptr, carver,
                       [&](const BlockSources& block) { block.measure(sizes.limits, carver); });
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
  check("max_kept_rows", options.max_kept_rows, 0, kMaxKeptRows);
}

}  // namespace

struct Decoder::Impl {
  Impl(Backend& backend_in, const ModelConfig& config_in, const ModelSources& sources,
       WeightReader& reader, const DecoderOptions& options_in);

  TensorView forward(const StepBatch& batch, std::span<const LoraAdapter* const> adapters,
                     KvCache& cache);
  TensorView logits(std::span<const int32_t> rows);
  TensorView hidden(std::span<const int32_t> rows);
  TensorView guess(const MtpStep& step, KvCache& cache);
  void keep(std::span<const int32_t> rows, int64_t first);
  /// A step's ops; with `whole` down to the logits of all rows.
  struct Pass {
    StepRows step;
    KvCache& cache;
    bool whole, all_hidden;
    const StepBatch& batch;
  };

  void run(const Pass& pass);
  void put_given(const StepRows& step, std::span<const GivenRows> given);
  void add_given(size_t index, const StepRows& step, std::span<const GivenRows> given);
  void read_logits(const StepRows& step, const TensorView& out);
  /// What of a layer comes behind its mixing of rows.
  void finish_layer(size_t index, const StepRows& step);
  /// out = what the layer's first block reads of the residual, if it has a norm.
  void norm_residual(size_t index, const TensorView& residual, const TensorView& out);
  TensorView hidden_rows(std::span<const int32_t> rows);
  /// The layers behind the last one that keeps something, for rows of the last step, whose
  /// residual and norm `chosen` has.
  void run_rest(std::span<const int32_t> rows, const StepRows& chosen);

  Backend& backend;
  ModelConfig config;
  DecoderOptions options;
  const size_t bytes_before;  // of the backend
  Vocabulary vocabulary;
  EmbeddingTables tables;
  std::unique_ptr<PerLayerInputs> per_layer;  // null: the model has none
  std::vector<Layer> layers;
  const size_t num_keeping;  // layers up to the last one that keeps something
  DeviceNorm final_norm;
  PoolHead pool_head;
  std::unique_ptr<MtpBlock> mtp;  // null: the model has none, or doesn't use it
  size_t weight_bytes = 0, adopted_bytes = 0;
  size_t idle_bytes = 0;  // of experts that one row isn't sent to, and of the MTP block
  int64_t num_parameters = 0;
  Backend::Buffer scratch_memory;
  Scratch scratch;
  const std::vector<LayerKeeps> kept;  // by layer
  StepLoras loras;
  ModalityRows modalities;
  BlockContext context;
  const bool rest_reads;  // layers behind num_keeping read what others keep
  RowSteps row_steps;     // of the last step
  KvCache* last_cache = nullptr;
  int64_t last_rows = 0;
  bool has_all_hidden = false;  // scratch.rows.normed are its rows after the final norm
};

Decoder::Impl::Impl(Backend& backend_in, const ModelConfig& config_in, const ModelSources& sources,
                    WeightReader& reader, const DecoderOptions& options_in)
    : backend(backend_in),
      config(config_in),
      options((check_options(options_in), options_in)),
      bytes_before(backend.bytes_in_use()),
      vocabulary(reader, sources, config, options.rank),
      tables(reader, sources, options.max_rows),
      per_layer(sources.per_layer
                    ? std::make_unique<PerLayerInputs>(config, *sources.per_layer, reader)
                    : nullptr),
      num_keeping(count_keeping(sources)),
      kept(list_kept(sources)),
      loras(options_in.max_rows, options_in.max_loras),
      modalities(options_in.max_rows),
      context{.backend = backend,
              .loras = loras,
              .modalities = modalities,
              .norm = config.norm,
              .has_ranks = options.rank.count > 1},
      rest_reads(std::any_of(kept.begin() + static_cast<ptrdiff_t>(num_keeping), kept.end(),
                             [](const LayerKeeps& layer) { return layer.reads >= 0; })),
      row_steps(options_in.max_logit_rows) {
  for (const LayerSources& layer : sources.layers) {
    layers.push_back(load_layer(backend, reader, layer, static_cast<int32_t>(layers.size())));
  }
  final_norm = reader.norm(sources.final_norm);
  pool_head.read(reader, sources);
  vocabulary.read_head(reader, sources);
  const size_t bytes_without_mtp = backend.bytes_in_use() + reader.adopted_bytes();
  if (sources.mtp) {
    mtp = std::make_unique<MtpBlock>(backend, config, *sources.mtp, reader,
                                     MtpBlock::Shared{vocabulary, final_norm.view()});
  }
  adopted_bytes = reader.adopted_bytes();
  weight_bytes = backend.bytes_in_use() - bytes_before + adopted_bytes;
  num_parameters = sources.num_parameters();
  idle_bytes = backend.bytes_in_use() + adopted_bytes - bytes_without_mtp;
  for (const MatrixSource* source : sources.proper_matrices()) {
    const auto idle = static_cast<size_t>(source->experts - source->active_experts);
    if (idle == 0) continue;
    idle_bytes += backend.packed_bytes(source->weight_shape(options.storage)) /
                  static_cast<size_t>(source->experts) * idle;
  }

  const DType activation = backend.activation_dtype(options.storage);
  const ScratchSizes sizes = scratch_sizes(config, sources, options, activation);
  scratch_memory = backend.allocate(scratch_bytes_of(sizes, sources));
  Carver carver(scratch_memory.data);
  scratch = lay_out_scratch(sizes, carver);
  context.lora_scratch = scratch.lora;
  vocabulary.place(sizes, carver);
  if (per_layer) per_layer->place(sizes, carver);
  pool_head.place(sizes, carver);
  if (mtp) mtp->place(sizes, scratch, carver);
  share_scratch(layers, mtp ? &mtp->layer() : nullptr, carver,
                [&](Block& block) { block.place(sizes.limits, carver); });
}

TensorView Decoder::Impl::forward(const StepBatch& batch_in,
                                  std::span<const LoraAdapter* const> adapters, KvCache& cache) {
  StepBatch batch = batch_in;
  const auto rows = static_cast<int64_t>(batch.token_ids.size());
  HEADRACE_CHECK(rows >= 1 && rows <= options.max_rows, rows);
  HEADRACE_CHECK(std::cmp_equal(cache.layout().num_layers(), kept.size()),
                 cache.layout().num_layers());
  batch.cache = &cache;
  for (const GivenRows& given : batch.given) {
    HEADRACE_CHECK(given.added.size() < num_keeping, given.added.size());
  }
  const bool whole = batch.logit_rows.size() == batch.token_ids.size() && batch.given.empty() &&
                     rows <= options.max_logit_rows && tables.empty();
  if (whole) batch.room = std::min(options.max_rows, options.max_logit_rows);
  if (!whole) batch.draws = {};
  last_rows = rows;
  last_cache = &cache;
  row_steps.begin(batch);
  loras.begin(batch.seqs, adapters);
  modalities.begin(batch.modalities, rows);
  backend.begin_step(batch);
  const Pass pass{first_rows(scratch.rows, backend.step_rows(batch)), cache, whole,
                  batch.all_hidden && !whole, batch};
  // Two pointers are as much as a std::function takes without memory.
  backend.run_step(this, cache, [this, &pass] { run(pass); });
  has_all_hidden = whole || batch.all_hidden;
  return whole ? scratch.logits.first_rows(rows) : logits(batch.logit_rows);
}

void Decoder::Impl::run(const Pass& pass) {
  const StepRows& step = pass.step;
  vocabulary.embed(backend, step.residual);
  vocabulary.finish_embedding(backend, step.residual);
  tables.add(context, pass.batch, step);
  if (per_layer) per_layer->run(backend, step);
  put_given(step, pass.batch.given);
  make_rope_tables(backend, config, step);
  backend.expect(layers[0].first_weight());
  norm_residual(0, step.residual, step.normed);
  for (size_t i = 0; i < layers.size(); ++i) {
    mix_layer(context, layers[i], step, pass.cache);
    // The rest is done for the rows that are asked for: hidden_rows().
    if (i + 1 == layers.size() || (i + 1 == num_keeping && !pass.whole && !pass.all_hidden)) break;
    finish_layer(i, step);
    add_given(i, step, pass.batch.given);
  }
  if (pass.whole) {
    const TensorView out = scratch.logits.first_rows(step.rows());
    read_logits(step, out);
    backend.draw(out, config.vocab_size);
  }
  if (pass.all_hidden) finish_layer(layers.size() - 1, step);
}

void Decoder::Impl::put_given(const StepRows& step, std::span<const GivenRows> given) {
  std::vector<int32_t> all;
  for (const GivenRows& rows : given) {
    all.resize(static_cast<size_t>(rows.embeddings.rows()));
    std::iota(all.begin(), all.end(), 0);
    backend.gather_rows(rows.embeddings, all,
                        step.residual.rows_from(rows.first_row, rows.embeddings.rows()));
  }
}

// Behind a layer, but before the norm that the next one reads: that is computed again.
void Decoder::Impl::add_given(size_t index, const StepRows& step,
                              std::span<const GivenRows> given) {
  for (const GivenRows& rows : given) {
    if (index >= rows.added.size()) continue;
    const TensorView& added = rows.added[index];
    const TensorView residual = step.residual.rows_from(rows.first_row, added.rows());
    backend.add(added, residual);
    norm_residual(index + 1, residual, step.normed.rows_from(rows.first_row, added.rows()));
  }
}

TensorView Decoder::Impl::logits(std::span<const int32_t> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  HEADRACE_CHECK(count <= options.max_logit_rows && count <= last_rows, count);
  const TensorView out = scratch.logits.first_rows(count);
  if (count == 0) return out;
  vocabulary.read_logits(backend, hidden_rows(rows), out);
  return out;
}

TensorView Decoder::Impl::hidden(std::span<const int32_t> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  HEADRACE_CHECK(count == last_rows || (count <= options.max_logit_rows && count < last_rows),
                 count);
  return count == 0 ? scratch.rows.normed.first_rows(0) : hidden_rows(rows);
}

// Behind the last layer that keeps something only the rows that are asked for matter. The step's
// own stay as they are, for those that are asked for later.
TensorView Decoder::Impl::hidden_rows(std::span<const int32_t> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  const bool all = count == last_rows;  // ascending, hence all of them in order: none later
  if (has_all_hidden) {
    const TensorView normed = scratch.rows.normed.first_rows(last_rows);
    if (all) return normed;
    const TensorView chosen = scratch.chosen_residual.first_rows(count);
    backend.gather_rows(normed, rows, chosen);
    return chosen;
  }
  loras.choose(rows);
  modalities.choose(rows);
  const StepRows step = first_rows(scratch.rows, last_rows);
  const StepRows chosen = all ? step : choose_rows(backend, scratch, step, rows);
  finish_layer(num_keeping - 1, chosen);
  if (num_keeping < layers.size()) run_rest(rows, chosen);
  return chosen.normed;
}

void Decoder::Impl::run_rest(std::span<const int32_t> rows, const StepRows& chosen) {
  if (rest_reads) {
    backend.begin_step(row_steps.choose(rows));
    make_rope_tables(backend, config, chosen);
  }
  for (size_t i = num_keeping; i < layers.size(); ++i) {
    mix_layer(context, layers[i], chosen, *last_cache);
    finish_layer(i, chosen);
  }
}

TensorView Decoder::Impl::guess(const MtpStep& step, KvCache& cache) {
  HEADRACE_CHECK(mtp && (step.input != MtpInput::kStep || has_all_hidden));
  loras.begin(step.batch.seqs, {});
  modalities.begin({}, static_cast<int64_t>(step.batch.token_ids.size()));
  has_all_hidden = false;
  return mtp->run(context, step, cache);
}

void Decoder::Impl::keep(std::span<const int32_t> rows, int64_t first) {
  HEADRACE_CHECK(mtp && has_all_hidden);
  mtp->keep(backend, rows, first);
}

void Decoder::Impl::read_logits(const StepRows& step, const TensorView& out) {
  finish_layer(layers.size() - 1, step);
  vocabulary.read_logits(backend, step.normed, out);
}

void Decoder::Impl::finish_layer(size_t index, const StepRows& step) {
  if (index + 1 == layers.size()) {
    headrace::finish_layer(context, layers[index], step, final_norm.view(),
                           vocabulary.output_matrix());
    return;
  }
  const Layer& next = layers[index + 1];
  headrace::finish_layer(context, layers[index], step, next.first_norm(), next.first_weight());
}

void Decoder::Impl::norm_residual(size_t index, const TensorView& residual, const TensorView& out) {
  const NormView norm = layers[index].first_norm();
  if (!norm.empty()) run_norm(context, residual, norm, out);
}

Decoder::Decoder(Backend& backend, const ModelConfig& config, const ModelSources& sources,
                 WeightReader& reader, const DecoderOptions& options)
    : impl_(std::make_unique<Impl>(backend, config, sources, reader, options)) {}

Decoder::~Decoder() = default;

TensorView Decoder::forward(const StepBatch& batch, std::span<const LoraAdapter* const> adapters,
                            KvCache& cache) {
  return impl_->forward(batch, adapters, cache);
}

TensorView Decoder::logits(std::span<const int32_t> rows) { return impl_->logits(rows); }

TensorView Decoder::hidden(std::span<const int32_t> rows) { return impl_->hidden(rows); }

TensorView Decoder::read_pool_head(std::span<const float> pooled) {
  return impl_->pool_head.run(impl_->context, pooled);
}

TensorView Decoder::guess(const MtpStep& step, KvCache& cache) { return impl_->guess(step, cache); }

void Decoder::keep(std::span<const int32_t> rows, int64_t first) { impl_->keep(rows, first); }

const ModelConfig& Decoder::config() const { return impl_->config; }

CacheLayout Decoder::cache_layout(const CacheOptions& options) const {
  return make_cache_layout(impl_->kept, options);
}

size_t Decoder::weight_bytes() const { return impl_->weight_bytes; }

size_t Decoder::adopted_bytes() const { return impl_->adopted_bytes; }

size_t Decoder::scratch_bytes() const { return impl_->scratch_memory.bytes; }

int64_t Decoder::num_parameters() const { return impl_->num_parameters; }

size_t Decoder::token_weight_bytes() const {
  const size_t idle = impl_->per_layer ? impl_->per_layer->idle_bytes() : 0;
  return impl_->weight_bytes - impl_->idle_bytes - impl_->vocabulary.idle_bytes() - idle;
}

size_t Decoder::plan_scratch_bytes(const ModelConfig& config, const ModelSources& sources,
                                   const DecoderOptions& options, DType activation) {
  check_options(options);
  return scratch_bytes_of(scratch_sizes(config, sources, options, activation), sources);
}

}  // namespace headrace
