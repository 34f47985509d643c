#pragma once

// A backend that passes every op on to another and notes how long each kind of op took.

#include <chrono>
#include <map>
#include <set>
#include <string>

#include "backend/contract/backend.h"

namespace headrace::bench {

/// What ops of one kind did.
struct OpTotals {
  int calls = 0;
  double seconds = 0;
  double bytes = 0;       ///< of weights read, and of states read and written
  double operations = 0;  ///< of products with weights, a multiply and an add counted as two
};

class TimedBackend final : public Backend {
 public:
  explicit TimedBackend(Backend& inner) : inner_(inner) {}

  /// Since the last reset(), by kind; linears apart by the shape of their weight.
  const std::map<std::string, OpTotals>& totals() const { return totals_; }
  void reset() { totals_.clear(); }

  DeviceInfo device_info() const override { return inner_.device_info(); }
  void enter_thread() override { inner_.enter_thread(); }
  void require(const BackendNeeds& needs) override { inner_.require(needs); }
  DType activation_dtype(DType storage) const override { return inner_.activation_dtype(storage); }
  Buffer allocate(size_t bytes) override { return inner_.allocate(bytes); }
  Buffer adopt(const void* data, size_t bytes, std::shared_ptr<void> owner) override {
    return inner_.adopt(data, bytes, std::move(owner));
  }
  size_t bytes_in_use() const override { return inner_.bytes_in_use(); }
  size_t bytes_held() const override { return inner_.bytes_held(); }
  void upload(const void* source, void* device, size_t bytes) override {
    inner_.upload(source, device, bytes);
  }
  void read_back(const void* device, void* destination, size_t bytes) override {
    inner_.read_back(device, destination, bytes);
  }
  std::unique_ptr<PackedWeight> pack_weight(const WeightSpec& spec) override {
    return inner_.pack_weight(spec);
  }
  std::string weight_layout(DType storage, const QuantFormat& quant) const override {
    return inner_.weight_layout(storage, quant);
  }
  size_t packed_bytes(const WeightShape& shape) const override {
    return inner_.packed_bytes(shape);
  }
  std::unique_ptr<PackedWeight> restore_weight(const WeightShape& shape, Buffer bytes) override {
    return inner_.restore_weight(shape, std::move(bytes));
  }
  TensorView pack_vector(const WeightPart& part, Buffer* owner) override {
    return inner_.pack_vector(part, owner);
  }
  std::unique_ptr<PackedLora> pack_lora(const LoraSpec& spec) override {
    return inner_.pack_lora(spec);
  }
  size_t kv_block_bytes(const CacheLayout& layout) const override {
    return inner_.kv_block_bytes(layout);
  }
  size_t state_slot_bytes(const CacheLayout& layout) const override {
    return inner_.state_slot_bytes(layout);
  }
  std::unique_ptr<KvCache> make_kv_cache(const CacheLayout& layout, int32_t blocks,
                                         int32_t slots) override {
    return inner_.make_kv_cache(layout, blocks, slots);
  }
  void add_host_blocks(KvCache& cache, int32_t count) override {
    inner_.add_host_blocks(cache, count);
  }
  void add_host_slots(KvCache& cache, int32_t count) override {
    inner_.add_host_slots(cache, count);
  }
  void reserve(const std::function<void()>& ops) override { inner_.reserve(ops); }

  void copy_blocks(KvCache& cache, std::span<const BlockCopy> copies) override {
    timed("copy_blocks", [&] { inner_.copy_blocks(cache, copies); });
  }
  void begin_step(const StepBatch& batch) override {
    num_slices_ = batch.seqs.size();
    timed("begin_step", [&] { inner_.begin_step(batch); });
  }
  void embed(const PackedWeight& table, TensorView out) override {
    timed("embed", [&] { inner_.embed(table, out); });
  }
  void rope_table(const RopeSpec& spec, TensorView out) override {
    timed("rope_table", [&] { inner_.rope_table(spec, out); });
  }
  void rms_norm(TensorView x, TensorView weight, float eps, TensorView out) override {
    timed("rms_norm", [&] { inner_.rms_norm(x, weight, eps, out); });
  }
  void add_rms_norm(TensorView residual, TensorView delta, TensorView weight, float eps,
                    TensorView out) override {
    timed("add_rms_norm", [&] { inner_.add_rms_norm(residual, delta, weight, eps, out); });
  }
  void expect(const PackedWeight& weight) override { inner_.expect(weight); }
  void linear(TensorView x, const PackedWeight& weight, TensorView bias, TensorView out) override {
    timed_linear("linear", x, weight, [&] { inner_.linear(x, weight, bias, out); });
  }
  void linear_add_rms_norm(const LinearAddNorm& args) override {
    timed_linear("add norm", args.x, args.weight, [&] { inner_.linear_add_rms_norm(args); });
  }
  void linear_gate_mul(TensorView x, const PackedWeight& weight, TensorView bias,
                       const GateSpec& spec, TensorView out) override {
    timed_linear("gate mul", x, weight,
                 [&] { inner_.linear_gate_mul(x, weight, bias, spec, out); });
  }
  void gate_mul(TensorView gate_up, const GateSpec& spec, TensorView out) override {
    timed("gate_mul", [&] { inner_.gate_mul(gate_up, spec, out); });
  }
  void route(TensorView x, const PackedWeight& gate, TensorView logit_bias, TensorView correction,
             const RouterSpec& spec, TensorView ids, TensorView weights) override {
    timed_linear("route", x, gate,
                 [&] { inner_.route(x, gate, logit_bias, correction, spec, ids, weights); });
  }
  /// Bytes are those of the experts that some row uses.
  void experts(const Experts& args) override {
    OpTotals& totals = timed("experts", [&] { inner_.experts(args); });
    std::set<int32_t> used;
    for (int64_t row = 0; row < args.ids.rows(); ++row) {
      const int32_t* ids = args.ids.row<int32_t>(row);
      used.insert(ids, ids + args.ids.cols());
    }
    const auto all = static_cast<double>(args.gate_up.bytes() + args.down.bytes());
    totals.bytes += all * static_cast<double>(used.size()) / args.gate_up.experts();
    totals.operations += 6.0 * static_cast<double>(args.ids.rows() * args.ids.cols() *
                                                   args.down.n() * args.down.k());
  }
  void add(TensorView x, TensorView out) override {
    timed("add", [&] { inner_.add(x, out); });
  }
  void scale(TensorView x, float factor, TensorView out) override {
    timed("scale", [&] { inner_.scale(x, factor, out); });
  }
  void mul_sigmoid(TensorView gate, TensorView out) override {
    timed("mul_sigmoid", [&] { inner_.mul_sigmoid(gate, out); });
  }
  void cap_logits(TensorView logits, float factor, float cap) override {
    timed("cap_logits", [&] { inner_.cap_logits(logits, factor, cap); });
  }
  void add_gated(TensorView x, TensorView gate, TensorView delta, TensorView out) override {
    timed("add_gated", [&] { inner_.add_gated(x, gate, delta, out); });
  }
  void lora(TensorView x, std::span<const LoraGroup> groups, TensorView scratch,
            TensorView out) override {
    timed("lora", [&] { inner_.lora(x, groups, scratch, out); });
  }
  void rope_kv_write(TensorView qkv, const QkvSpec& spec, const RopeSpec& rope,
                     TensorView rope_table, KvCache& cache, int32_t layer) override {
    timed("rope_kv_write",
          [&] { inner_.rope_kv_write(qkv, spec, rope, rope_table, cache, layer); });
  }
  void grouped_linear(const GroupedLinear& args) override {
    timed("grouped_linear", [&] { inner_.grouped_linear(args); });
  }
  void latent_write(TensorView q, TensorView kv, const LatentSpec& spec, const RopeSpec& rope,
                    TensorView rope_table, KvCache& cache, int32_t layer, TensorView out) override {
    timed("latent_write",
          [&] { inner_.latent_write(q, kv, spec, rope, rope_table, cache, layer, out); });
  }
  void rope_queries(TensorView q, const QkvSpec& spec, const RopeSpec& rope,
                    TensorView rope_table) override {
    timed("rope_queries", [&] { inner_.rope_queries(q, spec, rope, rope_table); });
  }
  void attention(TensorView q, const AttentionSpec& spec, const KvCache& cache, int32_t layer,
                 TensorView out) override {
    timed("attention", [&] { inner_.attention(q, spec, cache, layer, out); });
  }
  void causal_conv(TensorView x, TensorView weight, TensorView bias, const ConvSpec& spec,
                   KvCache& cache, int32_t layer, TensorView out) override {
    timed("causal_conv", [&] { inner_.causal_conv(x, weight, bias, spec, cache, layer, out); });
  }
  void delta_prepare(TensorView qkv, TensorView b, TensorView a, TensorView a_log,
                     TensorView dt_bias, const DeltaSpec& spec, TensorView gates) override {
    timed("delta_prepare", [&] { inner_.delta_prepare(qkv, b, a, a_log, dt_bias, spec, gates); });
  }
  void delta_rule(TensorView qkv, TensorView gates, const DeltaSpec& spec, KvCache& cache,
                  int32_t layer, TensorView out) override {
    timed_states("delta_rule", cache, layer,
                 [&] { inner_.delta_rule(qkv, gates, spec, cache, layer, out); });
  }
  void ssm_scan(const ScanArgs& args, KvCache& cache, int32_t layer, TensorView out) override {
    timed_states("ssm_scan", cache, layer, [&] { inner_.ssm_scan(args, cache, layer, out); });
  }
  void gated_norm(TensorView x, TensorView gate, TensorView weight, const GatedNormSpec& spec,
                  TensorView out) override {
    timed("gated_norm", [&] { inner_.gated_norm(x, gate, weight, spec, out); });
  }
  void multiply(TensorView a, TensorView b, TensorView out) override {
    timed("multiply", [&] { inner_.multiply(a, b, out); });
  }
  void gather_rows(TensorView x, std::span<const int32_t> rows, TensorView out) override {
    timed("gather_rows", [&] { inner_.gather_rows(x, rows, out); });
  }
  void layer_norm(TensorView x, TensorView weight, TensorView bias, float eps,
                  TensorView out) override {
    timed("layer_norm", [&] { inner_.layer_norm(x, weight, bias, eps, out); });
  }
  void activate(Activation kind, TensorView x) override {
    timed("activate", [&] { inner_.activate(kind, x); });
  }
  void rotate(TensorView x, TensorView table, int32_t heads, int32_t head_dim) override {
    timed("rotate", [&] { inner_.rotate(x, table, heads, head_dim); });
  }
  void scatter_rows(TensorView x, std::span<const int32_t> rows, TensorView out) override {
    timed("scatter_rows", [&] { inner_.scatter_rows(x, rows, out); });
  }
  void segment_attention(const SegmentAttention& args) override {
    timed("segment_attention", [&] { inner_.segment_attention(args); });
  }
  void sample(TensorView logits, int32_t vocab_size, std::span<const SampleRow> rows,
              std::span<SampleResult> results) override {
    timed("sample", [&] { inner_.sample(logits, vocab_size, rows, results); });
  }

 private:
  using Clock = std::chrono::steady_clock;

  template <class Op>
  OpTotals& timed(const std::string& name, const Op& op) {
    OpTotals& totals = totals_[name];
    const auto start = Clock::now();
    op();
    totals.seconds += std::chrono::duration<double>(Clock::now() - start).count();
    ++totals.calls;
    return totals;
  }

  template <class Op>
  void timed_linear(const std::string& kind, const TensorView& x, const PackedWeight& weight,
                    const Op& op) {
    const std::string shape = std::to_string(weight.n()) + " x " + std::to_string(weight.k());
    OpTotals& totals = timed(kind + " " + shape, op);
    totals.bytes += static_cast<double>(weight.bytes());
    totals.operations += 2.0 * static_cast<double>(x.rows() * weight.n() * weight.k());
  }

  /// Each slice's matrices are read and written once.
  template <class Op>
  void timed_states(const std::string& name, const KvCache& cache, int32_t layer, const Op& op) {
    OpTotals& totals = timed(name, op);
    const size_t numbers = cache.layout().state(layer).matrix_numbers();
    totals.bytes += 2.0 * sizeof(float) * static_cast<double>(num_slices_ * numbers);
  }

  Backend& inner_;
  size_t num_slices_ = 0;  ///< of the step
  std::map<std::string, OpTotals> totals_;
};

}  // namespace headrace::bench
