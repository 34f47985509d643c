#include "engine/load/check_ranks.h"

#include <string>

#include "base/check.h"
#include "engine/load/device.h"
#include "engine/load/weights.h"
#include "model/weights/weight_sources.h"

namespace headrace::internal {

void check_ranks(const ModelOptions& options, const ModelConfig& config, const PackedFile* packed) {
  if (packed != nullptr) check_packed_ranks(*packed, options);
  const int32_t count = num_ranks(options);
  if (count == 1) return;
  const auto refuse = [&](const std::string& what) {
    throw_error(ErrorCode::kUnsupported, "tensor_parallel_size is ", count, ", but ", what);
  };
  if (options.enable_expert_parallel && config.moe.router.num_experts == 0) {
    refuse(str_cat("enable_expert_parallel is set, and ", options.path, " has no experts."));
  }
  // Shares of other widths depend on the groups of the file, which adapters know nothing of.
  const StoredMethod stored = config.stored_quantization.method;
  const bool has_codes = stored != StoredMethod::kNone && !is_numbers(stored);
  if (options.max_loras > 0 && has_codes && !config.stored_quantization.own_order &&
      config.intermediate_size % (count * kMaxQuantGroup) != 0) {
    refuse(str_cat("an intermediate size of ", config.intermediate_size, " of ",
                   stored_method_name(stored), " weights isn't shared equally by whole groups of ",
                   kMaxQuantGroup, ", as adapters need it: set max_loras to 0."));
  }
  const RankPlace last = rank_place(options, count - 1);
  share_config(last, config);
  ModelSources sources = list_sources(config, likely_naming(config));
  share_sources(last, sources);
}

}  // namespace headrace::internal
