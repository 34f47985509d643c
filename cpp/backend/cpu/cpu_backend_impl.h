#pragma once

// The CPU backend over one kernel set. Methods are spread over files by what they do:
//   cpu_backend.cc  construction, memory, weights, begin_step
//   linear.cc       linear, linear_add_rms_norm, linear_gate_mul
//   route.cc        route
//   experts.cc      experts
//   lora.cc         pack_lora, lora
//   ranks.cc        join, embed_part, all_reduce, gather_columns
//   rows.cc         embed, rope_table, norms, gate_mul, add, add_gated, scale, mul_sigmoid,
//                   cap_logits, gated_norm, multiply, gather_rows
//   kv_cache.cc     kv_block_bytes, state_slot_bytes, make_kv_cache, add_host_blocks,
//                   add_host_slots, copy_blocks
//   rope_kv_write.cc  rope_kv_write
//   attention.cc    attention
//   states.cc       causal_conv, delta_prepare, delta_rule, ssm_scan
//   sample.cc       sample
//   vision_rows.cc  activate, rotate, scatter_rows
//   segment_attention.cc  segment_attention

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/contract/backend.h"
#include "backend/cpu/cpu_isa.h"
#include "backend/cpu/threads/numa_topology.h"
#include "backend/cpu/threads/thread_pool.h"
#include "backend/host/host_memory.h"
#include "backend/ranks/host_rank.h"

namespace headrace {

class PanelProduct;
struct PanelCut;

class CpuBackend : public Backend {
 public:
  /// `isa` must be available on this machine.
  CpuBackend(const CpuIsa& isa, int32_t num_threads, size_t memory_limit);
  /// share_threads() of `nodes`.
  CpuBackend(const CpuIsa& isa, int32_t num_threads, std::vector<NumaNode> nodes,
             size_t memory_limit);

  DeviceInfo device_info() const override;
  void enter_thread() override { pool_.adopt_caller(); }
  void require(const BackendNeeds& needs) override;
  DType activation_dtype(DType storage) const override;

  Buffer allocate(size_t bytes) override;
  Buffer adopt(const void* data, size_t bytes, std::shared_ptr<void> owner) override;
  size_t bytes_in_use() const override;
  size_t bytes_held() const override;
  void upload(const void* source, void* device, size_t bytes) override;
  void read_back(const void* device, void* destination, size_t bytes) override;

  std::unique_ptr<PackedWeight> pack_weight(const WeightSpec& spec) override;
  std::string weight_layout(DType storage, const QuantFormat& quant) const override;
  size_t packed_bytes(const WeightShape& shape) const override;
  std::unique_ptr<PackedWeight> restore_weight(const WeightShape& shape, Buffer contents) override;
  std::unique_ptr<PackedWeight> adopt_rows(const WeightShape& shape, const void* rows,
                                           std::shared_ptr<void> owner) override;
  TensorView pack_vector(const WeightPart& part, Buffer* owner) override;
  std::unique_ptr<PackedLora> pack_lora(const LoraSpec& spec) override;
  size_t kv_block_bytes(const CacheLayout& layout) const override;
  std::unique_ptr<KvCache> make_kv_cache(const CacheLayout& layout, int32_t num_blocks,
                                         int32_t num_slots) override;
  size_t state_slot_bytes(const CacheLayout& layout) const override;
  void add_host_blocks(KvCache& cache, int32_t count) override;
  void add_host_slots(KvCache& cache, int32_t count) override;

  void reserve(const std::function<void()>& ops) override;
  void copy_blocks(KvCache& cache, std::span<const BlockCopy> copies) override;
  void begin_step(const StepBatch& batch) override;
  void embed(const PackedWeight& table, TensorView out) override;
  void rope_table(const RopeSpec& spec, TensorView out) override;
  void rms_norm(TensorView x, TensorView weight, float eps, TensorView out) override;
  void add_rms_norm(TensorView residual, TensorView delta, TensorView weight, float eps,
                    TensorView out) override;
  void layer_norm(TensorView x, TensorView weight, TensorView bias, float eps,
                  TensorView out) override;
  void expect(const PackedWeight& weight) override { expected_ = &weight; }
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
  void sample(TensorView logits, int32_t vocab_size, std::span<const SampleRow> rows,
              std::span<SampleResult> results) override;
  void join(std::shared_ptr<RankGroup> group, int32_t rank) override;
  void embed_part(const PackedWeight& table, int32_t first, TensorView out) override;
  void all_reduce(TensorView x) override;
  void gather_columns(TensorView x, TensorView out) override;

 private:
  /// Puts each node's part of a weight's panels near it.
  void place(const PackedWeight& weight);

  /// x = its norms of whole rows; no weight: nothing.
  void normalize_rows(const TensorView& x, const TensorView& weight, const QkvSpec& spec);

  /// By group of the layout, KV heads of each of the pool's groups, if each can have as large a
  /// share of all of them as of the threads, so that none waits for another; else all heads
  /// together.
  std::vector<std::vector<int32_t>> share_heads(const CacheLayout& layout) const;

  /// Scratch of one op, aligned to 256 bytes, contents undefined. The next call invalidates it. It
  /// grows to the largest size asked for: in reserve(), before the first step.
  std::byte* scratch(size_t bytes);
  std::byte* grow(Buffer& buffer, size_t bytes);

  /// Runs body(begin, end) over rows on as many threads as their work is worth. `row_bytes`: memory
  /// one row touches.
  template <class Body>
  void for_rows(int64_t rows, int64_t row_bytes, const Body& body) {
    if (reserving_) return;
    // Waking a thread costs about what it costs to touch this much cached memory.
    constexpr int64_t kGrainBytes = 64 * 1024;
    const int64_t grain = row_bytes >= kGrainBytes ? 1 : kGrainBytes / (row_bytes + 1) + 1;
    pool_.parallel_for(rows, grain,
                       [&body](int64_t begin, int64_t end, int32_t) { body(begin, end); });
  }

  /// out[i] = the row of the step's token i, of a table that begins with token `first`; 0 where it
  /// has none.
  void read_tokens(const PackedWeight& table, int64_t first, const TensorView& out);

  struct HeadRows;
  /// Runs all slices' rows over the matrices of a layer's heads.
  void run_recurrence(void (*kernel)(const StateTask& task), const KvCache& cache, int32_t layer,
                      const HeadRows& in);

  struct LinearOperands;
  class ExpertsStep;
  static PanelTask panel_task(const LinearOperands& op, const PanelCut& cut, int64_t panel,
                              int64_t first_row);
  /// Packs the rows of x, then multiplies each block of them by every panel.
  void multiply_panels(const LinearOperands& op, const PanelProduct& product);
  /// Has threads that wait fetch their first panels of the expected weight, if `rows` are few.
  void read_ahead(int64_t rows);
  /// x with its columns in another order [k], in memory that the next call takes.
  TensorView reordered(const TensorView& x, const int32_t* order);
  void run_linear(const TensorView& x, const PackedWeight& weight, const TensorView& bias,
                  const TensorView& out, PanelEpilogue epilogue, const GateSpec& gate = {});

  const CpuIsa* isa_;
  const std::vector<NumaNode> nodes_;  ///< of the pool's groups; empty: threads go where they like
  HostMemory memory_;
  ThreadPool pool_;
  HostRank rank_;
  Buffer scratch_, reordered_, router_logits_;
  bool reserving_ = false;  ///< ops take their scratch and compute nothing
  /// Only between expect() and the next linear().
  const PackedWeight* expected_ = nullptr;
  StepBatch step_;  ///< of the current step; its spans are the caller's
};

}  // namespace headrace
