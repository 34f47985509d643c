#pragma once

// The engine: models by name, each with a loop thread of its own that batches its requests.
//
//   headrace::Engine engine;
//   engine.install_model("m", {.path = "ERNIE-4.5-0.3B-PT"});
//   engine.start_model("m");
//   headrace::Request request = engine.submit("m", {.prompt_token_ids = ids});
//   for (auto queue = request.results();;) {
//     headrace::Output out = queue.get();
//     ...
//     if (out.finished) break;
//   }
//
// States of a model: installed -> running -> stopping -> stopped -> (released: the name is free
// again). A stopped model may be started again. One whose steps keep failing is failed: it ends
// its requests with an error and can only be released. Of several replicas
// (ModelOptions::data_parallel_size) the others go on; the model fails with the last one.
// Every method may be called from any thread, but for callbacks (ResultQueue::on_output, LogSink):
// they run on the threads of the models, which cannot wait for themselves, and must not start,
// stop or release (kInvalidState). Errors are thrown as headrace::Error; kNotFound is a name that
// is not installed.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/abi.h"
#include "headrace/options.h"
#include "headrace/request.h"
#include "headrace/status.h"
#include "headrace/token_constraint.h"
#include "headrace/version.h"

namespace headrace::internal {
struct EngineAccess;
}

namespace headrace::inline v0 {

class ChatTemplates;
class TextStream;
class Tokenizer;
struct ChatOptions;
struct TextOptions;
enum class GrammarKind : uint8_t;

enum class ModelState : uint8_t { kInstalled, kRunning, kStopping, kStopped, kFailed };

struct ModelInfo {
  std::string name, path, family;  ///< family: the HF model_type
  std::string device, isa, dtype, kv_cache_dtype;
  std::string quantization;  ///< "" (none), as options have it, or what the checkpoint
                             ///< says: "gptq", "awq", "fp8", "compressed-tensors"
  int64_t num_parameters = 0;
  /// Those that one token meets: of a layer's experts the ones it is sent to.
  int64_t num_active_parameters = 0;
  int32_t num_experts = 0, num_active_experts = 0;  ///< of a layer, and for a token; 0 = dense
  int32_t vocab_size = 0, hidden_size = 0, num_layers = 0, num_heads = 0, num_kv_heads = 0;
  int32_t head_dim = 0, intermediate_size = 0;
  int32_t max_model_len = 0, max_num_seqs = 0, max_num_batched_tokens = 0, block_size = 0;
  int32_t num_kv_blocks = 0, num_threads = 0;
  int32_t num_host_kv_blocks = 0;  ///< that swap_space holds
  /// Block tables of a sequence: one for each group of layers that keep the same. Where some layers
  /// have a window there are several.
  int32_t num_kv_groups = 1;
  /// Numbers of keys and values that a sequence keeps of each token, by the window of the layers
  /// that keep them: 0 of all tokens, else of about so many of the last.
  std::map<int32_t, int64_t> kv_numbers;
  /// Of a model whose layers keep states; else 0. num_host_state_slots: that swap_space holds.
  int32_t num_state_slots = 0, num_host_state_slots = 0, snapshot_interval = 0;
  int32_t tensor_parallel_size = 1;  ///< devices that share the model
  /// Replicas of it. Blocks, threads and bytes are of all devices of all replicas together, but
  /// for token_weight_bytes; limits are each replica's.
  int32_t data_parallel_size = 1;
  int32_t num_nodes = 0;  ///< NUMA nodes that weights and work are shared out to
  int32_t max_loras = 0, max_lora_rank = 0;
  bool causal = true;     ///< false: tokens see those behind them, too (is_causal of config.json)
  bool generates = true;  ///< text; false: not causal, or no head. RequestOptions::pooling works.
  /// Of a checkpoint with layers behind pooling, the numbers that they give
  /// (PoolingParams::use_head); else 0.
  int32_t head_outputs = 0;
  /// These layers are a classifier, and this is the pooling that it was trained with.
  bool classifies = false;
  Pooling classifier_pooling = Pooling::kCls;
  bool tells_pairs = false;       ///< PoolingParams::second_text_at may be set
  bool vision = false;            ///< RequestOptions::media may have pixels
  bool takes_embeddings = false;  ///< RequestOptions::media may have embeddings
  int32_t max_encoder_tokens = 0;
  size_t encoder_cache_bytes = 0;
  size_t vision_weight_bytes = 0;  ///< of the tower, beside weight_bytes
  size_t token_weight_bytes = 0;   ///< of weight_bytes, what the next token of one request reads
  size_t weight_bytes = 0, kv_cache_bytes = 0, scratch_bytes = 0;
  /// Of a GPU, besides: what the largest steps, adapters and a draft model take.
  size_t reserved_bytes = 0;
  size_t device_free_bytes = 0;    ///< left on the devices when the model had been loaded
  size_t host_kv_cache_bytes = 0;  ///< of num_host_kv_blocks, in main memory
  size_t state_slot_bytes = 0;     ///< of each state slot, whether in main memory or not
  /// Of weight_bytes: pages of a packed file, shared between processes; the system may drop them
  /// and read them again.
  size_t mapped_weight_bytes = 0;
  std::string packed_weights{};  ///< the packed file that the weights come from, "" = none
  /// Kernels that failed their trial on a GPU, and what runs in their place, or is refused, with
  /// the GPU in front if there are several: text for people.
  std::vector<std::string> replaced_kernels{};
  double load_seconds = 0;
  std::vector<int32_t> eos_token_ids;  ///< config.json and generation_config.json together
};

/// What a folder's config.json says: the fields that need neither weights nor a device, the rest
/// empty or 0. max_model_len is the checkpoint's. Throws as install_model does for such a folder.
HEADRACE_API ModelInfo describe_model(const std::string& folder);

/// Counters since start_model, of all replicas together; all but the gauges only grow.
struct ModelStats {
  ModelState state = ModelState::kInstalled;
  int32_t running_replicas = 0;  ///< gauge: that take requests; one that fails leaves the others
  int32_t waiting_requests = 0, running_requests = 0;  // gauges
  // Gauges; cached blocks are free, and those of a replica that has failed count as none.
  int32_t total_kv_blocks = 0, free_kv_blocks = 0;
  int32_t cached_kv_blocks = 0;       // gauge: free, but hold a prefix
  int32_t cached_host_kv_blocks = 0;  // gauge: host blocks that hold a prefix
  // Gauges of models with states. Cached slots have a snapshot, which goes when a request needs its
  // slot; free ones have nothing.
  int32_t total_state_slots = 0, free_state_slots = 0;
  int32_t cached_state_slots = 0, cached_host_state_slots = 0;
  uint64_t finished_requests = 0, preemptions = 0, interruptions = 0, steps = 0;
  uint64_t prompt_tokens = 0, generated_tokens = 0;  // computed
  uint64_t prefix_hit_tokens = 0, prefix_miss_tokens = 0;
  uint64_t prefix_host_hit_tokens = 0;                      // of the hits, those in host blocks
  uint64_t kv_blocks_to_host = 0, kv_blocks_from_host = 0;  // moved, to make room and to be read
  /// Snapshots that were kept, that had to leave their slots, and that came back from the host's.
  uint64_t snapshots_saved = 0, snapshots_evicted = 0, snapshots_restored = 0;
  /// Of the misses: in cached blocks, but behind the last snapshot.
  uint64_t prefix_unused_tokens = 0;
  double busy_seconds = 0;       // in steps
  double mask_wait_seconds = 0;  // of those, waiting for constraints (guided decoding)
  size_t memory_bytes = 0;       // gauge: used by the model, without what is mapped
  size_t memory_pool_bytes = 0;  // gauge: taken from the system for it, used or not
  size_t mapped_bytes = 0;       // gauge: pages of a packed file
  // Speculative decoding: guesses computed, and those of them that became part of an output.
  uint64_t drafted_tokens = 0, accepted_tokens = 0;
  // Images and clips: rows encoded or given, and rows found in the encoder cache instead.
  uint64_t encoded_tokens = 0, encoder_hit_tokens = 0;
  size_t encoder_cache_bytes = 0;  // gauge: of memory_bytes, what encoded items take
};

/// An adapter (LoRA) of a model.
struct LoraInfo {
  std::string name, path;
  int32_t rank = 0;           ///< the largest of its modules'
  int32_t num_modules = 0;    ///< linears that it adds to
  size_t bytes = 0;           ///< of memory
  int32_t live_requests = 0;  ///< that use it now
};

class HEADRACE_API Engine {
 public:
  explicit Engine(EngineOptions options = {});
  /// Cancels what still runs and releases every model. Queues and requests stay readable.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Reads the folder, packs the weights and reserves memory. On failure nothing is left behind.
  /// kInvalidState if the name is taken.
  void install_model(const std::string& name, const ModelOptions& options);
  /// Warms up and starts to serve. kInvalidState unless it is installed or stopped.
  void start_model(const std::string& name);
  /// Refuses new requests and waits until those in hand have finished. At once for a model that is
  /// stopped or failed; kInvalidState for one that was never started.
  void stop_model(const std::string& name);
  /// The same; false if `timeout` passed first: the model goes on stopping.
  bool stop_model(const std::string& name, std::chrono::nanoseconds timeout);
  /// Cancels what still runs, in any state, then gives all memory of the model back.
  void release_model(const std::string& name);

  /// Queues a request. Throws on a bad one (kInvalidArgument, kLimitExceeded), for an unknown
  /// model (kNotFound) or one that isn't running (kInvalidState); other requests never notice.
  Request submit(const std::string& name, RequestOptions options);

  // Texts: include headrace/chat.h. What reads and writes them is loaded when it is first used.

  /// Queues the answer to a conversation, a JSON list of messages, as ChatTemplates::render reads
  /// it. Throws as that and as submit do: kNotFound, too, for a folder without a tokenizer.
  TextStream submit_chat(const std::string& name, std::string_view messages_json,
                         TextOptions options, const ChatOptions& chat);
  TextStream submit_chat(const std::string& name, std::string_view messages_json,
                         TextOptions options);
  TextStream submit_chat(const std::string& name, std::string_view messages_json);
  /// Queues what follows a text, which is taken as it stands.
  TextStream submit_text(const std::string& name, std::string_view prompt, TextOptions options);
  TextStream submit_text(const std::string& name, std::string_view prompt);
  /// Of the model's folder.
  std::shared_ptr<const Tokenizer> tokenizer(const std::string& name) const;
  std::shared_ptr<const ChatTemplates> chat_templates(const std::string& name) const;
  /// A constraint for outputs of the model, by Headrace's own engine for JSON schemas and regular
  /// expressions (headrace/grammar.h). Throws as GrammarCompiler does.
  std::shared_ptr<TokenConstraint> compile_grammar(const std::string& name, GrammarKind kind,
                                                   const std::string& text) const;

  /// Reads a PEFT folder (adapter_config.json, adapter_model.safetensors) for requests to use by
  /// `lora_name`, in any state of the model but failed, and while it computes. The folder is read
  /// on the caller's thread. kInvalidState if the name is taken, kLimitExceeded beyond max_loras or
  /// max_lora_rank; kNotFound, kCorruptFile and kUnsupported name file and tensor or key.
  void load_lora(const std::string& name, const std::string& lora_name, const std::string& path);
  /// Gives its memory back. kNotFound if there is none of that name, kInvalidState while a request
  /// that has not finished uses it.
  void unload_lora(const std::string& name, const std::string& lora_name);
  std::vector<LoraInfo> loras(const std::string& name) const;

  ModelInfo model_info(const std::string& name) const;
  ModelStats model_stats(const std::string& name) const;
  std::vector<std::string> models() const;

  /// Drops every block of the prefix cache that no running request uses; returns when it is done.
  /// From a callback, which can't wait for that, before the next step.
  void clear_prefix_cache(const std::string& name);

 private:
  friend struct internal::EngineAccess;
  class HEADRACE_LOCAL Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace::inline v0
