#include "model/sources/model_sources.h"

#include "model/sources/weight_slice.h"

namespace headrace {

namespace {

/// Those of the list that the model has.
template <class Out, class Source>
void append_present(const std::vector<Source*>& sources, std::vector<Out*>& out) {
  for (Source* source : sources) {
    if (!source->empty()) out.push_back(source);
  }
}

void append_norm(const NormSource& norm, std::vector<const VectorSource*>& out) {
  append_present(std::vector{&norm.weight, &norm.bias}, out);
}

}  // namespace

std::vector<BlockSources*> LayerSources::blocks() const {
  std::vector<BlockSources*> out;
  if (mixer != nullptr) out.push_back(mixer.get());
  if (feed_forward != nullptr) out.push_back(feed_forward.get());
  if (last != nullptr) out.push_back(last.get());
  return out;
}

std::vector<MatrixSource*> LayerSources::matrices() {
  std::vector<MatrixSource*> out;
  for (BlockSources* block : blocks()) append_present(block->matrices(), out);
  return out;
}

std::vector<const MatrixSource*> LayerSources::matrices() const {
  std::vector<const MatrixSource*> out;
  for (BlockSources* block : blocks()) append_present(block->matrices(), out);
  return out;
}

std::vector<const VectorSource*> LayerSources::vectors() const {
  std::vector<const VectorSource*> out;
  for (const NormSource* norm :
       {&mixer_norm, &feed_forward_norm, &mixer_post_norm, &feed_forward_post_norm, &mixer_sum_norm,
        &feed_forward_sum_norm, &last_post_norm}) {
    append_norm(*norm, out);
  }
  append_present(std::vector{&scalar}, out);
  for (BlockSources* block : blocks()) append_present(block->vectors(), out);
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
  append_present(std::vector{&final_norm}, out);
  return out;
}

std::vector<const MatrixSource*> ModelSources::proper_matrices() const {
  std::vector<const MatrixSource*> out;
  append_present(std::vector{&embedding, &head}, out);
  if (per_layer) append_present(std::vector{&per_layer->table, &per_layer->projection}, out);
  for (const LayerSources& layer : layers) append_present(layer.matrices(), out);
  for (const HeadLayerSources& layer : pool_head) out.push_back(&layer.linear.matrix);
  if (vision) append_present(vision->matrices(), out);
  return out;
}

std::vector<const MatrixSource*> ModelSources::matrices() const {
  std::vector<const MatrixSource*> out = proper_matrices();
  if (mtp) append_present(mtp->matrices(), out);
  return out;
}

std::vector<const VectorSource*> ModelSources::vectors() const {
  std::vector<const VectorSource*> out;
  append_present(std::vector{&positions, &token_types}, out);
  append_norm(embedding_norm, out);
  append_norm(final_norm, out);
  if (per_layer) out.push_back(&per_layer->norm);
  for (const LayerSources& layer : layers) append_present(layer.vectors(), out);
  for (const HeadLayerSources& layer : pool_head) {
    if (!layer.linear.bias.empty()) out.push_back(&layer.linear.bias);
    append_norm(layer.norm, out);
  }
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
  if (per_layer) count -= per_layer->table.numbers() - per_layer->table.k;
  for (const MatrixSource* source : proper_matrices()) {
    count -= source->numbers() - source->active_numbers();
  }
  return count;
}

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
    for (BlockSources* block : layer.blocks()) block->share(place);
  };
  for (LayerSources& layer : sources.layers) share_layer(layer);
  if (sources.mtp) share_layer(sources.mtp->layer);
  if (place.index == 0) return;
  sources.vision.reset();
  sources.pool_head.clear();
}

ModelConfig share_config(const RankPlace& place, const ModelConfig& config) {
  ModelConfig out = config;
  if (place.count == 1) return out;
  out.num_kv_heads =
      static_cast<int32_t>(share_kv_heads(config.num_heads, config.num_kv_heads, place).count);
  out.num_heads = config.num_heads / place.count;
  for (LayerHeads& heads : out.layer_heads) {
    heads.num_kv_heads =
        static_cast<int32_t>(share_kv_heads(config.num_heads, heads.num_kv_heads, place).count);
  }
  return out;
}

}  // namespace headrace
