#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/abi.h"

namespace headrace::inline v0 {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

/// "debug", "info", "warning", "error". Never null.
HEADRACE_API const char* log_level_name(LogLevel level) noexcept;

/// Called from any thread, one call at a time. Must not call back into the engine.
using LogSink = std::function<void(LogLevel, std::string_view)>;

struct EngineOptions {
  /// Empty: messages are dropped. The library never prints.
  LogSink log_sink{};
};

/// What gives way when running requests need more KV blocks than there are.
enum class OutOfBlocks : uint8_t {
  kPreempt,           ///< the newest one waits and is computed again later: every request finishes
  kInterruptLongest,  ///< the one with most tokens, prompt and output, ends with kInterrupted
  kInterruptRandom,   ///< one picked at random, in the same way every time, ends with kInterrupted
};

/// Speculative decoding: tokens that may come next are guessed and computed in one step with the
/// last one; those that are what the model draws are kept. Outputs are bit for bit what they are
/// without it, under every sampling setting. docs/speculative.md says when it helps; a request that
/// it doesn't help is slowed by no more than a few percent.
struct SpeculativeOptions {
  /// "" (off); "ngram": what followed the last tokens when they came before, in prompt and output;
  /// "draft_model": what a second model says; "mtp": what the model's own MTP block says, if it was
  /// trained with one.
  std::string method{};
  int32_t num_speculative_tokens = 8;  ///< most guesses of a request in a step, 1..32
  int32_t min_ngram_size = 2;          ///< tokens that must match, 1..max_ngram_size
  int32_t max_ngram_size = 5;          ///< the longest match looked for, up to 64
  /// "draft_model": the folder of a small model with the same vocabulary. It has a KV cache of as
  /// many blocks, within the memory that the model may take.
  /// "mtp": a folder with the block's tensors, if they aren't in the model's own.
  std::string model{};
};

/// What a load does, in its order; some leave stages out.
enum class LoadStage : uint8_t {
  kOpening,    ///< reads the configuration and the headers of the weights' files
  kChecking,   ///< reads a packed file and compares it with what was written
  kWeights,    ///< converts the weights, or maps them
  kReserving,  ///< takes the memory of the KV cache
};

/// "opening", "checking", "weights", "reserving". Never null.
HEADRACE_API const char* load_stage_name(LoadStage stage) noexcept;

/// How far a load is. bytes_done grows up to bytes_total within a stage; both are 0 where nothing
/// is counted.
struct LoadProgress {
  LoadStage stage = LoadStage::kOpening;
  size_t bytes_done = 0, bytes_total = 0;
};

/// Called at least behind each weight, by threads of the load, one call at a time. Must be quick
/// and must not call the engine. What it throws ends the load, and is thrown by it.
using LoadProgressSink = std::function<void(const LoadProgress&)>;

/// How one model is loaded and run. 0 or "" means: choose.
struct ModelOptions {
  std::string path{};  ///< folder with config.json and *.safetensors
  /// "cpu", "cpu_numa", "cuda" (the first GPU), "cuda:N", or "auto": the first GPU if this build
  /// has the CUDA plug-in, the GPU is usable and runs the model, and neither cpu_isa nor a packed
  /// file asks for the CPU; else the CPU. "cpu_numa" confines the threads to the cores of the NUMA
  /// nodes that this process may use, a share to each, and keeps each share's part of the weights
  /// near it; the results are those of "cpu", bit for bit. On one node it is "cpu".
  std::string device = "auto";
  /// Devices that compute the model together, each with its part of the weights and of the KV cache
  /// (docs/parallel.md): with device "cuda" the first GPUs, with "cpu" as many groups of threads,
  /// on NUMA nodes of their own if there are that many. Must divide the attention heads. 1..64.
  int32_t tensor_parallel_size = 1;
  /// The same by name: "cuda:0", "cuda:2", ..., or "cpu:0", "cpu:1", ...: each one's share is that
  /// of its place in the list. device must be "auto" then. Empty: device says it.
  std::vector<std::string> devices{};
  /// Of a mixture of experts each device has some experts, whole ones; false: a part of each one.
  /// The devices must divide the experts then. Needs several devices and a model with experts.
  bool enable_expert_parallel = false;
  /// Copies of the model (replicas), each on devices of its own, tensor_parallel_size of them: with
  /// device "cuda" the GPUs in their order, with "cpu" groups of threads; `devices` names all of
  /// them, replica after replica. Each request is computed by one replica, that which is likely to
  /// have done it first: the one with the least work in hand, prompt tokens that its prefix cache
  /// holds left out. Limits here (max_num_seqs, kv_cache_bytes, swap_space, ...) are each
  /// replica's; num_threads is for all together, and memory_utilization what all may take of a
  /// memory that they share. 1..64, and no more than 64 devices in all.
  int32_t data_parallel_size = 1;
  std::string dtype = "auto";  ///< "auto" (the checkpoint's), "float32", "bfloat16", "float16"
  /// "" (none, or the packed file's), "none", "wint8" or "wint4": weights are rounded at load to 8
  /// or 4 bits (a vision tower's to 8) with a scale for each group of inputs; the CPU rounds
  /// activations to 8 bits, too, in every linear layer. On a GPU also "fp8" and "block_wise_fp8":
  /// weights and activations of layers as FP8 e4m3. A checkpoint that comes quantized is loaded as
  /// it is, and needs none. See docs/models.md.
  std::string quantization{};
  int32_t quantization_group_size = 0;  ///< 32, 64 or 128; 0 = 64 for wint8, 32 for wint4; FP8: 0
  /// "auto" (the dtype), "float32", "bfloat16", "float16"; "int8", "fp8" (e4m3) and "uint4" round
  /// keys and values when they are written, with scales for each token and head (docs/models.md).
  std::string kv_cache_dtype = "auto";
  int32_t num_threads = 0;  ///< CPU threads; 0 = HEADRACE_NUM_THREADS, else usable cores
  std::string cpu_isa{};    ///< one of available_cpu_isas(): force a CPU kernel set

  int32_t max_model_len = 0;  ///< prompt + output; 0 = the model's, as far as memory allows
  int32_t max_num_seqs = 64;  ///< sequences running at once, 1..4096
  /// Tokens per step; 0 = 512, GPU: 4096 (>= max_num_seqs); of a bidirectional model at least what
  /// one text may have, up to 8192.
  int32_t max_num_batched_tokens = 0;
  int32_t block_size = 64;  ///< tokens per KV block: 16, 32, 64, 128 or 256
  /// Of all groups of layers together (ModelInfo::num_kv_groups): a sequence takes a block of each
  /// group for block_size tokens. 0 = from kv_cache_bytes
  int32_t num_kv_blocks = 0;
  size_t kv_cache_bytes = 0;        ///< 0 = memory_utilization of the free memory, at most what
                                    ///< max_num_seqs x max_model_len can use
  double memory_utilization = 0.9;  ///< (0, 1]: share of free memory the model may take in all
  /// In (0, 1]: instead, this share of all memory but memory_leftover_bytes, as far as it is free.
  /// 0 = off; then memory_leftover_bytes must be 0.
  double total_memory_ratio = 0.0;
  size_t memory_leftover_bytes = 0;
  bool enable_prefix_caching = true;
  /// Of a model whose layers keep states (docs/reliability.md): slots for the states of running
  /// sequences, at least max_num_seqs (with speculative decoding num_speculative_tokens more), for
  /// guesses, and for snapshots, from which a cached prefix goes on. 0 = the least, and of the
  /// memory that is left then half for guesses and snapshots, as far as they are of use.
  int32_t num_state_slots = 0;
  /// Likewise: tokens between a sequence's snapshots, a multiple of block_size. 0 = as many as have
  /// the bytes of a state in the KV cache, 512 to 4096.
  int32_t snapshot_interval = 0;
  /// GiB of main memory for blocks that the prefix cache gives up: they stay findable there, least
  /// recently used ones go, and come back by a copy when a prompt needs them. Taken at load,
  /// page-locked for a GPU; on the CPU a part of what the model may take. 0 = off.
  double swap_space = 0.0;
  /// New requests wait for their blocks under each of them.
  OutOfBlocks out_of_blocks = OutOfBlocks::kPreempt;
  /// Prompts longer than this are prefilled in chunks of at most this many tokens, but pictures
  /// whose rows see each other come whole; 0 = whole budget.
  int32_t max_prefill_chunk = 0;
  /// A file made by pack_model() (pack.h) to map the weights from: the start reads it once, and
  /// processes that map it share its pages. It must fit the folder's weights, if there are any, its
  /// config.json, and this machine: one that does not is an Error. dtype "auto" is then the file's.
  /// Replace the file by another one (as pack_model does) while it is in use, but don't change it.
  /// "" = the weights in the folder, or its model.headrace if there are none.
  /// "auto" = the same, but on the CPU the engine keeps packed files in a cache folder and maps
  /// them itself: where there is none that fits, it loads the folder and writes one in the
  /// background while the model serves. The folder is $HEADRACE_CACHE, else
  /// $XDG_CACHE_HOME/headrace, else ~/.cache/headrace; docs/packed.md.
  std::string packed_weights{};
  /// Copy the weights out of the packed file instead of mapping it.
  bool packed_copy = false;
  int32_t max_loras = 0;       ///< adapters that may be loaded at once, 0..256; 0: none
  int32_t max_lora_rank = 64;  ///< 1..4096; memory for max_loras of that rank is set aside
  SpeculativeOptions speculative{};
  /// Rows of images and clips encoded between two steps of other requests, 1..2^20: less makes the
  /// others wait less, more gets done sooner. 0 = half of max_num_batched_tokens.
  int32_t max_encoder_tokens = 0;
  /// Encoded images and clips are kept in so much of the device's memory, least recently used ones
  /// go. At least what one of its pieces takes. 0 = 256 MiB with a vision tower, else what two
  /// steps of given embeddings take.
  size_t encoder_cache_bytes = 0;
  /// Load no weights; fill them with small pseudo-random numbers (benchmarks).
  bool dummy_weights = false;

  /// Told how far install_model or pack_model is. Empty: nobody is.
  LoadProgressSink load_progress{};
  /// Ends install_model or pack_model once its source requests a stop, from any thread: within the
  /// time that about a MiB of weights takes, with Error(kCancelled). Nothing is left behind.
  std::stop_token load_stop{};
};

/// Names of the CPU kernel sets usable on this machine, best first.
HEADRACE_API std::vector<std::string> available_cpu_isas();

}  // namespace headrace::inline v0
