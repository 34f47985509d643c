#include "model/decoder/vocabulary.h"

namespace headrace {

namespace {

TensorView place_part(const ScratchSizes& sizes, Carver& carver) {
  return carver.matrix(sizes.own_vocab > 0 ? sizes.logit_rows : 0, sizes.own_vocab, DType::kF32);
}

}  // namespace

Vocabulary::Vocabulary(WeightReader& reader, const ModelSources& sources, const ModelConfig& config,
                       const RankPlace& place)
    : place_(place),
      size_(config.vocab_size),
      embedding_scale_(config.embedding_scale),
      logit_scale_(config.logit_scale),
      logit_cap_(config.logit_cap),
      tokens_(share_vocabulary(size_, place)),
      embedding_(reader.matrix(sources.embedding)) {}

void Vocabulary::read_head(WeightReader& reader, const ModelSources& sources) {
  head_ = reader.matrix(sources.head);
}

void Vocabulary::measure(const ScratchSizes& sizes, Carver& carver) { place_part(sizes, carver); }

void Vocabulary::place(const ScratchSizes& sizes, Carver& carver) {
  part_ = place_part(sizes, carver);
}

void Vocabulary::embed(Backend& backend, const TensorView& out) const {
  if (place_.count == 1) {
    backend.embed(*embedding_, out);
  } else {
    backend.embed_part(*embedding_, static_cast<int32_t>(tokens_.first), out);
  }
}

void Vocabulary::finish_embedding(Backend& backend, const TensorView& out) const {
  if (place_.count > 1) backend.all_reduce(out);
  if (embedding_scale_ != 1.0f) backend.scale(out, embedding_scale_, out);
}

void Vocabulary::read_logits(Backend& backend, const TensorView& normed,
                             const TensorView& out) const {
  if (place_.count == 1) {
    backend.linear(normed, output_matrix(), {}, out);
  } else {
    const TensorView part = part_.first_rows(normed.rows());
    backend.linear(normed, output_matrix(), {}, part);
    const TensorView none(nullptr, DType::kF32, {part.rows(), size_});
    backend.gather_columns(part, out.cols() > 0 ? out : none);
  }
  const bool plain = logit_scale_ == 1.0f && logit_cap_ == 0.0f;
  if (!plain && out.cols() > 0) backend.cap_logits(out, logit_scale_, logit_cap_);
}

}  // namespace headrace
