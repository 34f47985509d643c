#include "model/families/family.h"
#include "model/families/latent/latent_layer.h"

namespace headrace {

std::span<const Family* const> all_families() {
  static const std::vector<const Family*> kFamilies{
      &llama_family(),
      &mistral_family(),
      &qwen2_family(),
      &qwen3_family(),
      &ernie4_5_family(),
      &ernie4_5_moe_family(),
      &qwen3_moe_family(),
      &qwen2_moe_family(),
      &mixtral_family(),
      &glm4_moe_family(),
      &gpt_oss_family(),
      &qwen2_vl_family(),
      &qwen2_5_vl_family(),
      &smolvlm_family(),
      &idefics3_family(),
      &qwen3_vl_family(),
      &qwen3_vl_moe_family(),
      &qwen3_5_family(),
      &qwen3_5_moe_family(),
      &ernie4_5_moe_vl_family(),
      &ernie4_5_vl_moe_family(),
      &gemma2_family(),
      &gemma3_text_family(),
      &gemma3_family(),
      &gemma4_text_family(),
      &deepseek_v2_family(),
      &deepseek_v3_family(),
      &glm4_moe_lite_family(),
      &smollm3_family(),
      &olmo2_family(),
      &olmo3_family(),
      &phi3_family(),
      &granite_family(),
      &exaone4_family(),
      &glm4_family(),
      &seed_oss_family(),
      &ministral3_family(),
      &cohere2_family(),
      &hunyuan_v1_dense_family(),
      &lfm2_family(),
      &lfm2_moe_family(),
      &qwen3_5_text_family(),
      &qwen3_5_moe_text_family(),
      &qwen3_next_family(),
      &granitemoehybrid_family(),
      &nemotron_h_family(),
      &falcon_h1_family(),
      &bert_family(),
      &roberta_family(),
      &xlm_roberta_family(),
      &modernbert_family(),
  };
  return kFamilies;
}

}  // namespace headrace
