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
  std::vector<const VectorSource*> out;
  for (const NormSource* norm :
       {&mixer_norm, &feed_forward_norm, &mixer_post_norm, &feed_forward_post_norm, &mixer_sum_norm,
        &feed_forward_sum_norm}) {
    append_norm(*norm, out);
  }
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
  for (const HeadLayerSources& layer : pool_head) out.push_back(&layer.linear.matrix);
  if (mtp) append_present(mtp->matrices(), out);
  if (vision) append_present(vision->matrices(), out);
  return out;
}

std::vector<const VectorSource*> ModelSources::vectors() const {
  std::vector<const VectorSource*> out;
  append_present(std::vector{&positions, &token_types}, out);
  append_norm(embedding_norm, out);
  append_norm(final_norm, out);
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
  for (const MatrixSource* source : matrices())
    count -= source->numbers() - source->active_numbers();
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
    layer.mixer->share(place);
    layer.feed_forward->share(place);
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
  return out;
}

}  // namespace headrace
