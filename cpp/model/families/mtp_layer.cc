#include "model/families/mtp_layer.h"

#include "base/check.h"
#include "model/families/llama_layer.h"

namespace headrace {

MtpSources list_mtp_block(const ModelConfig& config, const LayerNaming& naming,
                          const MtpNames& names) {
  const int64_t hidden = config.hidden_size;
  MtpSources out;
  out.embedding_norm =
      list_norm(config, naming, "embedding_norm", names.embedding_norm, hidden).weight;
  out.hidden_norm = list_norm(config, naming, "hidden_norm", names.hidden_norm, hidden).weight;
  out.join = naming.matrix("join", {{names.join, hidden}}, 2 * hidden);
  if (names.final_norm != nullptr) {
    out.final_norm = list_norm(config, naming, "final_norm", names.final_norm, hidden).weight;
  }
  return out;
}

LayerNaming naming_behind(const ModelConfig& config, const TensorNaming& naming) {
  return {naming, "mtp.", str_cat("layers.", config.num_layers, ".")};
}

MtpSources list_mtp_behind(const ModelConfig& config, const LayerNaming& naming) {
  return list_mtp_block(config, naming,
                        {.embedding_norm = "enorm",
                         .hidden_norm = "hnorm",
                         .join = "eh_proj",
                         .final_norm = "shared_head.norm"});
}

}  // namespace headrace
