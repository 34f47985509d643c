#include "model/families/family.h"

namespace headrace {

std::span<const Family* const> all_families() {
  static const std::vector<const Family*> kFamilies{
      &llama_family(),           &mistral_family(),         &qwen2_family(),
      &qwen3_family(),           &ernie4_5_family(),        &ernie4_5_moe_family(),
      &qwen3_moe_family(),       &qwen2_moe_family(),       &mixtral_family(),
      &qwen2_vl_family(),        &qwen2_5_vl_family(),      &smolvlm_family(),
      &idefics3_family(),        &qwen3_vl_family(),        &qwen3_vl_moe_family(),
      &ernie4_5_moe_vl_family(), &ernie4_5_vl_moe_family(),
  };
  return kFamilies;
}

}  // namespace headrace
