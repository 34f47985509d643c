#include <array>
#include <limits>
#include <string>

#include "base/check.h"
#include "engine/devices/device_names.h"
#include "engine/load/load_model.h"
#include "model/config/quantization.h"
#include "model/lora/lora_config.h"

namespace headrace::internal {

namespace {

constexpr int32_t kMaxModelLen = 1 << 24;
constexpr int32_t kMaxSeqs = 4096;
constexpr int32_t kMaxBatchedTokens = 1 << 20;
constexpr int32_t kMaxThreads = 1024;
constexpr int32_t kMaxDrafts = 32;
constexpr int32_t kMaxNgram = 64;
constexpr double kMostSwapSpace = 1 << 20;

template <class T>
void check_range(const char* field, T value, T low, T high, const char* note) {
  if (value < low || value > high) {
    throw_error(ErrorCode::kInvalidArgument, field, " must be in [", low, ", ", high, "]", note,
                ", got ", value, ".");
  }
}

template <size_t N, class T>
void check_one_of(const char* field, const T& value, const std::array<T, N>& allowed) {
  std::string names;
  for (const T& name : allowed) {
    if (value == name) return;
    names += str_cat(names.empty() ? "" : ", ", name);
  }
  throw_error(ErrorCode::kInvalidArgument, field, " must be one of ", names, ", got ", value, ".");
}

void check_speculative(const SpeculativeOptions& options) {
  if (options.method.empty()) return;
  const bool has_draft = options.method == "draft_model";
  if (!has_draft && options.method != "ngram" && options.method != "mtp") {
    throw_error(ErrorCode::kUnsupported, "speculative method '", options.method,
                "' is not supported: use ngram, draft_model or mtp, or leave it empty.");
  }
  if (has_draft && options.model.empty()) {
    throw_error(ErrorCode::kInvalidArgument,
                "speculative method draft_model needs the folder of a ",
                "second model: name it in speculative.model.");
  }
  if (options.method == "ngram" && !options.model.empty()) {
    throw_error(ErrorCode::kInvalidArgument, "speculative method ngram has no model, but ",
                options.model, " is named: leave it out, or use draft_model.");
  }
  check_range("num_speculative_tokens", options.num_speculative_tokens, 1, kMaxDrafts, "");
  check_range("max_ngram_size", options.max_ngram_size, 1, kMaxNgram, "");
  check_range("min_ngram_size", options.min_ngram_size, 1, options.max_ngram_size,
              " (max_ngram_size)");
}

}  // namespace

void validate_model_options(const ModelOptions& options) {
  if (options.path.empty()) {
    throw_error(ErrorCode::kInvalidArgument, "path is empty: name the model's folder.");
  }
  check_devices(options);
  const std::array<std::string, 4> dtypes = {"auto", "float32", "bfloat16", "float16"};
  check_one_of("dtype", options.dtype, dtypes);
  parse_quantization(options.quantization, options.quantization_group_size);
  const std::array<std::string, 7> kv_dtypes = {"auto", "float32", "bfloat16", "float16",
                                                "int8", "fp8",     "uint4"};
  check_one_of("kv_cache_dtype", options.kv_cache_dtype, kv_dtypes);
  if (options.dummy_weights && !options.packed_weights.empty()) {
    throw_error(ErrorCode::kInvalidArgument, "packed_weights is ", options.packed_weights,
                " and dummy_weights is set: choose one.");
  }
  check_range("num_threads", options.num_threads, 0, kMaxThreads, " (0: choose)");
  check_range("max_model_len", options.max_model_len, 0, kMaxModelLen, " (0: choose)");
  if (options.max_model_len == 1) {
    throw_error(ErrorCode::kInvalidArgument,
                "max_model_len must hold a prompt token and a generated one: at least 2, got 1.");
  }
  check_range("max_num_seqs", options.max_num_seqs, 1, kMaxSeqs, "");
  check_range("max_num_batched_tokens", options.max_num_batched_tokens, 0, kMaxBatchedTokens,
              " (0: choose)");
  if (options.max_num_batched_tokens > 0 && options.max_num_batched_tokens < options.max_num_seqs) {
    throw_error(ErrorCode::kInvalidArgument, "max_num_batched_tokens must be at least max_num_seqs",
                " = ", options.max_num_seqs, ", got ", options.max_num_batched_tokens, ".");
  }
  check_one_of("block_size", options.block_size, std::array<int32_t, 5>{16, 32, 64, 128, 256});
  check_range("num_kv_blocks", options.num_kv_blocks, 0, std::numeric_limits<int32_t>::max(),
              " (0: choose)");
  check_range("num_state_slots", options.num_state_slots, 0, std::numeric_limits<int32_t>::max(),
              " (0: choose)");
  check_range("snapshot_interval", options.snapshot_interval, 0, kMaxModelLen, " (0: choose)");
  if (options.snapshot_interval % options.block_size != 0) {
    throw_error(ErrorCode::kInvalidArgument, "snapshot_interval is ", options.snapshot_interval,
                ", but snapshots stand at the ends of blocks: make it a multiple of block_size ",
                options.block_size, ", or 0 (choose).");
  }
  if (!(options.memory_utilization > 0.0 && options.memory_utilization <= 1.0)) {
    throw_error(ErrorCode::kInvalidArgument, "memory_utilization must be in (0, 1], got ",
                options.memory_utilization, ".");
  }
  if (!(options.total_memory_ratio >= 0.0 && options.total_memory_ratio <= 1.0)) {
    throw_error(ErrorCode::kInvalidArgument, "total_memory_ratio must be in [0, 1] (0: off), got ",
                options.total_memory_ratio, ".");
  }
  if (options.memory_leftover_bytes > 0 && options.total_memory_ratio == 0.0) {
    throw_error(ErrorCode::kInvalidArgument, "memory_leftover_bytes is ",
                options.memory_leftover_bytes, " without total_memory_ratio: set both.");
  }
  if (!(options.swap_space >= 0.0 && options.swap_space <= kMostSwapSpace)) {
    throw_error(ErrorCode::kInvalidArgument, "swap_space must be in [0, ", kMostSwapSpace,
                "] GiB (0: off), got ", options.swap_space, ".");
  }
  if (options.swap_space > 0.0 && !options.enable_prefix_caching) {
    throw_error(ErrorCode::kInvalidArgument, "swap_space is ", options.swap_space,
                " GiB, but enable_prefix_caching is off, and nothing else goes there: turn it on,"
                " or set swap_space to 0.");
  }
  check_range("out_of_blocks", static_cast<int>(options.out_of_blocks), 0,
              static_cast<int>(OutOfBlocks::kInterruptRandom), " (OutOfBlocks)");
  check_range("max_loras", options.max_loras, 0, kMaxLoras, "");
  check_range("max_lora_rank", options.max_lora_rank, 1, kMaxLoraRank, "");
  check_range("max_prefill_chunk", options.max_prefill_chunk, 0, kMaxBatchedTokens,
              " (0: no bound)");
  check_range("max_encoder_tokens", options.max_encoder_tokens, 0, kMaxBatchedTokens,
              " (0: choose)");
  check_speculative(options.speculative);
}

}  // namespace headrace::internal
