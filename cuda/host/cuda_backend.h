#pragma once

// The CUDA backend. Methods are spread over files by what they do:
//   cuda_backend.cc  construction, memory, weights
//   backend_step.cc  begin_step and the step's records (graphs)
//   backend_ops.cc   the ops that are one kernel each
//   backend_attention.cc  rope_kv_write, rope_queries, attention
//   backend_latent.cc  grouped_linear, latent_write
//   backend_lora.cc  pack_lora, lora
//   backend_experts.cc  route, experts, add_gated
//   backend_quant.cc  embed and linear of quantized weights, rows that norms round for them
//   backend_ranks.cc  join, and what ranks do together
//   backend_states.cc  the ops of layers with a state
//   backend_sample.cc  sample, begin_sample, end_sample
//   backend_draw.cc  draws that are a part of a recorded step
//   backend_trials.cc  trials of kernels: what is replaced, what is refused
//   backend_vision.cc  the ops of vision towers, rows from the host
//
// Ops return when they are queued on the backend's stream; read_back(), sample() and end_sample()
// alone wait.
// Every call throws Error(kDevice) if CUDA reports an error, see CudaContext::check.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "backend/contract/backend.h"
#include "backend/cuda_plugin.h"
#include "cuda/host/memory/device_memory.h"
#include "cuda/host/memory/pinned.h"
#include "cuda/host/memory/stream_writer.h"
#include "cuda/host/memory/swap_stream.h"
#include "cuda/host/ranks/device_rank.h"
#include "cuda/host/runtime/context.h"
#include "cuda/host/step/step_arena.h"
#include "cuda/host/step/step_graphs.h"
#include "cuda/host/trials/trial_record.h"
#include "cuda/host/weights/device_weight.h"
#include "cuda/host/weights/uploader.h"
#include "cuda/kernels/attention/attention.h"
#include "cuda/kernels/linear/linear.h"
#include "cuda/kernels/rows/embed.h"
#include "cuda/kernels/rows/rms_norm.h"
#include "cuda/kernels/sample/sample.h"
#include "cuda/kernels/states/state_lists.h"
#include "cuda/kernels/vision/segment_attention.h"

namespace headrace::cuda {

struct AttentionHeads;  // cuda/host/trials/kernel_trials.h

class CudaBackend : public Backend {
 public:
  /// Throws what CudaContext's constructor throws. `api` must outlive this.
  CudaBackend(CudaApi& api, const CudaBackendOptions& options);
  ~CudaBackend() override;

  DeviceInfo device_info() const override;
  void require(const BackendNeeds& needs) override;
  DType activation_dtype(DType storage) const override;
  bool lost() const noexcept override { return context_.lost(); }

  Buffer allocate(size_t bytes) override;
  Buffer adopt(const void* data, size_t bytes, std::shared_ptr<void> owner) override;
  size_t bytes_in_use() const override;
  size_t bytes_held() const override;
  void upload(const void* source, void* device, size_t bytes) override;
  void write_rows(std::span<const float> values, TensorView to) override;
  void read_back(const void* device, void* destination, size_t bytes) override;

  std::unique_ptr<PackedWeight> pack_weight(const WeightSpec& spec) override;
  std::string weight_layout(DType storage, const QuantFormat& quant) const override;
  size_t packed_bytes(const WeightShape& shape) const override;
  std::unique_ptr<PackedWeight> restore_weight(const WeightShape& shape, Buffer contents) override;
  TensorView pack_vector(const WeightPart& part, Buffer* owner) override;
  TensorView pack_float_vector(const WeightPart& part, Buffer* owner) override;
  std::unique_ptr<PackedLora> pack_lora(const LoraSpec& spec) override;
  size_t kv_block_bytes(const CacheLayout& layout) const override;
  size_t state_slot_bytes(const CacheLayout& layout) const override;
  std::unique_ptr<KvCache> make_kv_cache(const CacheLayout& layout, int32_t num_blocks,
                                         int32_t num_slots) override;
  void add_host_blocks(KvCache& cache, int32_t count) override;
  void add_host_slots(KvCache& cache, int32_t count) override;
  void copy_blocks(KvCache& cache, std::span<const BlockCopy> copies) override;
  void reserve(const std::function<void()>& ops) override;

  void begin_step(const StepBatch& batch) override;
  int64_t step_rows(const StepBatch&) const override { return step_.rows; }
  int32_t recorded_rows() const override { return record_steps_ ? kMaxRecordedRows : 0; }
  void run_step(const void* model, const KvCache& cache, const std::function<void()>& ops) override;
  void embed(const PackedWeight& table, TensorView out) override;
  void expect(const PackedWeight& weight) override;
  void rope_table(const RopeSpec& spec, TensorView out) override;
  void rms_norm(TensorView x, TensorView weight, float eps, TensorView out) override;
  void add_rms_norm(TensorView residual, TensorView delta, TensorView weight, float eps,
                    TensorView out) override;
  void layer_norm(TensorView x, TensorView weight, TensorView bias, float eps,
                  TensorView out) override;
  void linear(TensorView x, const PackedWeight& weight, TensorView bias, TensorView out) override;
  void linear_add_rms_norm(const LinearAddNorm& args) override;
  void linear_gate_mul(TensorView x, const PackedWeight& weight, TensorView bias,
                       const GateSpec& spec, TensorView out) override;
  void gate_mul(TensorView gate_up, const GateSpec& spec, TensorView out) override;
  void route(TensorView x, const PackedWeight& gate, TensorView logit_bias, TensorView correction,
             const RouterSpec& spec, TensorView ids, TensorView weights) override;
  void experts(const Experts& args) override;
  void add(TensorView x, TensorView out) override;
  void scale(TensorView x, float factor, TensorView out) override;
  void mul_sigmoid(TensorView gate, TensorView out) override;
  void cap_logits(TensorView logits, float factor, float cap) override;
  void add_gated(TensorView x, TensorView gate, TensorView delta, TensorView out) override;
  void lora(TensorView x, std::span<const LoraGroup> groups, TensorView scratch,
            TensorView out) override;
  void rope_kv_write(TensorView qkv, const QkvSpec& spec, const RopeSpec& rope,
                     TensorView rope_table, KvCache& cache, int32_t layer) override;
  void grouped_linear(const GroupedLinear& args) override;
  void latent_write(TensorView q, TensorView kv, const LatentSpec& spec, const RopeSpec& rope,
                    TensorView rope_table, KvCache& cache, int32_t layer, TensorView out) override;
  void rope_queries(TensorView q, const QkvSpec& spec, const RopeSpec& rope,
                    TensorView rope_table) override;
  void attention(TensorView q, const AttentionSpec& spec, const KvCache& cache, int32_t layer,
                 TensorView out) override;
  void causal_conv(TensorView x, TensorView weight, TensorView bias, const ConvSpec& spec,
                   KvCache& cache, int32_t layer, TensorView out) override;
  void delta_prepare(TensorView qkv, TensorView b, TensorView a, TensorView a_log,
                     TensorView dt_bias, const DeltaSpec& spec, TensorView gates) override;
  void delta_rule(TensorView qkv, TensorView gates, const DeltaSpec& spec, KvCache& cache,
                  int32_t layer, TensorView out) override;
  void ssm_scan(const ScanArgs& args, KvCache& cache, int32_t layer, TensorView out) override;
  void gated_norm(TensorView x, TensorView gate, TensorView weight, const GatedNormSpec& spec,
                  TensorView out) override;
  void multiply(TensorView a, TensorView b, TensorView out) override;
  void gather_rows(TensorView x, std::span<const int32_t> rows, TensorView out) override;
  void activate(Activation kind, TensorView x) override;
  void rotate(TensorView x, TensorView table, int32_t heads, int32_t head_dim) override;
  void scatter_rows(TensorView x, std::span<const int32_t> rows, TensorView out) override;
  void segment_attention(const SegmentAttention& args) override;
  void join(std::shared_ptr<RankGroup> group, int32_t rank) override;
  void link_ranks() override;
  void embed_part(const PackedWeight& table, int32_t first, TensorView out) override;
  void all_reduce(TensorView x) override;
  void all_reduce_add_rms_norm(const ReduceAddNorm& args) override;
  void gather_columns(TensorView x, TensorView out) override;
  void sample(TensorView logits, int32_t vocab_size, std::span<const SampleRow> rows,
              std::span<SampleResult> results) override;
  bool runs_ahead() const override { return !samples_on_host_; }
  int32_t most_logprobs_ahead() const override;
  void draw(TensorView logits, int32_t vocab_size) override;
  void begin_sample(TensorView logits, int32_t vocab_size,
                    std::span<const SampleRow> rows) override;
  void end_sample(std::span<SampleResult> results) override;

 private:
  static constexpr int32_t kMaxRecordedRows = 256;

  /// The current step on the device.
  struct Step {
    StepBatch batch;   ///< its spans are the caller's
    int64_t rows = 0;  ///< computed: the batch's and, if it is recorded, padding
    bool recorded = false;
    const int32_t* token_ids = nullptr;
    const int32_t* positions = nullptr;
    const int32_t* rope_lens = nullptr;
    const int32_t* drawn_by = nullptr;        ///< StepBatch::drawn
    const int32_t* axis_positions = nullptr;  ///< StepBatch::rope_positions, null: there are none
    const int32_t* used_rows = nullptr;       ///< one number: those of the batch
    int64_t table_stride = 0;                 ///< 0: there are no tables
    StateStep states;                         ///< of a cache with states
    bool ends_with_draws = false;             ///< on the first rank
    bool spreads = false;                     ///< SampleArgs::spreads of these
    const SampleRowArgs* draws = nullptr;     ///< [rows], null: it ends with the logits here
    SampleRowResult* const* drawn = nullptr;  ///< where draw() leaves results
  };

  /// Of a group of the step's cache, on the device.
  struct GroupTables {
    const int64_t* slots;   ///< [rows] where each row's keys and values go
    const int32_t* blocks;  ///< [sequences][table_stride]
  };

  /// A shape of attention that the model has, and the step's work for it.
  struct PlannedAttention {
    AttentionShape shape;
    AttentionPlan plan;
    WorkList<AttentionItem> short_items, long_items;
  };

  /// What begin_sample() or draw() has queued, which writes to pinned memory.
  struct Draw {
    PinnedBuffer output;
    EventHandle done;
    size_t rows = 0;
    int32_t most_logprobs = 0;
  };

  /// Angles of one model on the device.
  struct RopeFrequencies {
    std::vector<float> inv_freq, long_inv_freq;
    std::vector<uint8_t> axes;
    Buffer device;                         ///< one behind the other
    const uint8_t* device_axes = nullptr;  ///< in `device`; null: there are none
  };

  /// What segment_attention() goes by, on the device.
  struct Segments {
    std::vector<int32_t> ends;
    std::vector<SegmentItem> items;
    Buffer device;          ///< `items`
    uint64_t last_use = 0;  ///< segment_uses_ then
  };

  /// Queues an op's kernels, unless reserve() or the check of a replay runs.
  template <class Args>
  void launch(void (*op)(const Args&, Stream), const std::type_identity_t<Args>& args) {
    rounded_ahead_ = {};
    if (reserving_ || graphs_.dry_run()) return;
    try {
      op(args, context_.stream());
    } catch (...) {
      context_.note_failure();
      throw;
    }
  }
  void try_kernels();
  void try_needed_kernels();
  /// What one model needs besides, once.
  void try_model_kernels(const BackendNeeds& needs);
  void try_heads(const AttentionHeads& heads);
  void try_exchanges();
  /// Notes that kernels failed a trial, unless `why` is empty: whether they did.
  bool fails(const char* kernels, const std::string& why, const char* instead);
  /// The same of kernels that nothing replaces.
  void note_refused(const char* kernels, const std::string& why, std::string& refused);
  TrialRecord trial_record(const std::string& trials) const;
  void refuse_model(const BackendNeeds& needs) const;
  /// Throws Error(kUnsupported) naming `kernels`, the card and the driver, unless it is empty.
  void refuse(const std::string& kernels) const;
  void refuse_weight(const QuantFormat& quant, DType storage, int32_t experts) const;
  /// DeviceRank's, behind a wait for what is read then.
  void expect_answers() {
    if (rank_ != nullptr) rank_->expect_answers();
  }
  void queue_rows();
  void queue_axis_positions();
  void queue_draws();
  void queue_tables(int32_t group);
  void queue_states();
  void queue_plan(PlannedAttention& planned);
  PlannedAttention& planned_attention(const AttentionShape& shape);
  const RopeFrequencies& frequencies(const RopeSpec& spec);
  const Segments& segments(std::span<const int32_t> ends);
  /// At least `bytes` of pinned memory; the next call's contents replace this one's.
  std::byte* pinned_results(size_t bytes);
  /// At least `bytes` of device memory in `workspace`, contents undefined.
  void* grow(Buffer& workspace, size_t bytes);
  /// Of the layer's group. REQUIRES: the cache is the step's.
  const GroupTables& tables_of(const KvCache& cache, int32_t layer) const;
  struct SampleBatch;
  struct SampleOutput;
  static SampleOutput output_in(std::byte* memory, size_t rows, int32_t max_logprobs);
  void reserve_sampling(size_t rows, int32_t vocab_size);
  void queue_samples(const TensorView& logits, int32_t vocab_size, SampleBatch& batch,
                     const SampleOutput& output);
  void sample_batch(const TensorView& logits, int32_t vocab_size, SampleBatch& batch);
  Draw spare_draw(size_t bytes);
  /// begin_sample() of rows that the step has drawn from itself.
  void begin_drawn(std::span<const SampleRow> rows);
  bool on_device(const SampleRow& row) const;
  void sample_on_host(const TensorView& logits, int32_t vocab_size, std::span<const SampleRow> rows,
                      std::span<SampleResult> results);
  enum class Epilogue : uint8_t { kPlain, kAdd, kGateMul };  ///< kAdd: to what `out` holds
  void run_linear(const TensorView& x, const PackedWeight& weight, const TensorView& bias,
                  const TensorView& out, Epilogue epilogue, const GateSpec& gate = {});
  /// Of a table that has tokens [first, first + count).
  void run_embed(const PackedWeight& table, int32_t first, int32_t count, const TensorView& out);
  /// False for a weight that isn't quantized, of which nothing is done.
  bool embed_quantized(const PackedWeight& table, const EmbedArgs& args);
  bool run_quantized(const PackedWeight& packed, const LinearArgs& args);
  void run_norm(RmsNormArgs args);
  /// If expect() was told of a weight that rounds rows, sets args.rounded.
  void round_ahead(RmsNormArgs& args);
  /// What a norm that was just launched has left: it holds until the next launch.
  void note_rounded(const RmsNormArgs& args);
  /// Whether that is what a linear of `layout` needs of x.
  bool is_rounded(const ConstMatrix& x, DType dtype, const QuantLayout& layout) const;

  CudaContext context_;
  const bool record_steps_;
  const bool use_peers_;  ///< CudaBackendOptions, as the next one
  const std::string nccl_;
  bool has_wgmma_;                      ///< linears may use it
  bool codes_by_wgmma_;                 ///< linears of FP8 that meets FP8 may use it
  bool quant_by_wgmma_;                 ///< linears of int4 and int8 weights may use it
  bool attends_by_wgmma_;               ///< attention may use it
  bool attends_plainly_ = false;        ///< attention has no tensor cores
  bool attends_codes_plainly_ = false;  ///< likewise, of quantized KV caches
  bool samples_on_host_ = false;
  bool norms_round_ = true;  ///< norms may write codes, too
  std::vector<std::string> replaced_kernels_;
  /// Kernels of each kind, and why this GPU isn't trusted with them; empty: it is.
  struct Refused {
    std::string linears, quant, rounded, experts, rounded_experts;
    std::string norms, copies, half_writes, code_writes;
    std::string attention, choices, lora, towers;
  };
  Refused refused_;
  const DType storage_;  ///< of the model's weights, hence the dtype of its activations
  DeviceMemory memory_;
  EventHandle released_;    ///< behind all that uses memory which allocate() gave and has back
  Uploader uploader_;       ///< for the backend's thread
  Uploader lora_uploader_;  ///< for whoever loads adapters meanwhile
  StepArena arena_;
  StepArena sample_arena_;  ///< apart: a recorded step relies on where arena_ lies
  StreamWriter writer_;
  PinnedBuffer results_;    ///< for what is read back
  std::deque<Draw> draws_;  ///< that have begun, oldest first
  std::vector<Draw> spare_draws_;
  std::optional<Draw> step_draw_;  ///< of the step's draw(), until begin_sample() has it
  Buffer drawn_;  ///< [kMostDrawn] tokens that the step, or the one before, has drawn
  size_t num_drawn_ = 0;
  Buffer attention_partials_, sample_workspace_;
  Buffer quant_input_;                   ///< rows in the order of a weight, or as codes
  std::optional<QuantLayout> expected_;  ///< of expect(), until a norm has asked
  /// Rows that lie in quant_input_ as codes, too. No data: there are none.
  struct RoundedAhead {
    ConstMatrix x;
    DType dtype = DType::kF32;
    QuantLayout layout = {};
  };
  RoundedAhead rounded_ahead_;
  Buffer experts_workspace_;   ///< of route(), then of experts()
  Buffer attention_counters_;  ///< zero between kernels
  int workspace_generation_ = 0;
  bool reserving_ = false;  ///< ops take their memory and compute nothing
  std::vector<RopeFrequencies> rope_frequencies_;
  std::vector<PlannedAttention> attentions_;
  std::vector<Segments> segments_;
  uint64_t segment_uses_ = 0;
  std::unique_ptr<DeviceRank> rank_;  ///< null: the model is on this GPU alone
  StepGraphs graphs_;                 ///< they go before rank_
  const bool tries_kernels_;          ///< CudaBackendOptions, as the next one
  const std::string trials_folder_;
  std::set<std::string> tried_;        ///< trials of models
  std::unique_ptr<SwapStream> swaps_;  ///< null: no cache has host blocks
  Step step_;
  std::vector<GroupTables> tables_;  ///< the step's, by group
  int step_generation_ = 0;          // of arena_, where the step began
  std::vector<int32_t> host_i32_;    // reused from step to step
  std::vector<int64_t> host_i64_;
  StateLists state_lists_;
};

}  // namespace headrace::cuda
