#include "backend/reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/checks/op_checks.h"
#include "backend/checks/op_checks_attention.h"
#include "backend/checks/op_checks_experts.h"
#include "backend/checks/op_checks_state.h"
#include "backend/checks/op_checks_vision.h"
#include "backend/host/array_kv_cache.h"
#include "backend/host/cpu_info.h"
#include "backend/host/host_memory.h"
#include "backend/host/rope_angles.h"
#include "backend/host/weight_source.h"
#include "backend/ranks/host_rank.h"
#include "backend/reference/reference_attention.h"
#include "backend/reference/reference_experts.h"
#include "backend/reference/reference_lora.h"
#include "backend/reference/reference_quant.h"
#include "backend/reference/reference_rows.h"
#include "backend/reference/reference_sample.h"
#include "backend/reference/reference_states.h"
#include "backend/reference/reference_vision.h"
#include "base/check.h"
#include "base/checked_math.h"
#include "memory/mmap_allocator.h"
#include "tensor/finite.h"

namespace headrace {

namespace {

/// float32 [experts][n][k], rounded to the storage dtype; of a reordered format then its orders,
/// int32 [experts][k]; of one that rounds_rows() then its scales, float32 [experts][n][scales].
class ReferenceWeight final : public PackedWeight {
 public:
  ReferenceWeight(const WeightShape& shape, Backend::Buffer memory)
      : PackedWeight(shape.n, shape.k, shape.storage, memory.data, memory.bytes, shape.experts),
        quant_(shape.quant),
        memory_(std::move(memory)) {}

  const QuantFormat& quant() const { return quant_; }
  float* row(int64_t i) const { return static_cast<float*>(memory_.data) + i * k(); }
  int32_t* order(int64_t expert = 0) const {
    return reinterpret_cast<int32_t*>(row(experts() * n())) + expert * k();
  }
  float* scales(int64_t i) const {
    return row(experts() * n()) + i * reference_scales(quant_, k());
  }

 private:
  QuantFormat quant_;
  Backend::Buffer memory_;
};

double dot(const float* a, const float* b, int64_t n) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

class ReferenceBackend final : public Backend {
 public:
  ReferenceBackend(size_t memory_limit, Activations quant_activations, bool code_products,
                   Float8Sum float8_sum)
      : quant_activations_(quant_activations),
        code_products_(code_products),
        float8_sum_(float8_sum),
        memory_(memory_limit) {}

  DeviceInfo device_info() const override {
    const RawMemoryInfo memory = host_memory_info();
    return {.name = "cpu",
            .description = cpu_brand() + ", reference, 1 thread",
            .isa = "reference",
            .num_threads = 1,
            .total_bytes = memory.total_bytes,
            .free_bytes = memory.free_bytes,
            .quant_activations = quant_activations_,
            .code_products = code_products_,
            .float4_weights = true};
  }
  void require(const BackendNeeds& needs) override { require_cpu_needs(needs, code_products_); }
  DType activation_dtype(DType) const override { return DType::kF32; }

  Buffer allocate(size_t bytes) override { return memory_.allocate(bytes); }
  Buffer adopt(const void* data, size_t bytes, std::shared_ptr<void> owner) override {
    return adopt_host_memory(data, bytes, std::move(owner));
  }
  size_t bytes_in_use() const override { return memory_.bytes_in_use(); }
  size_t bytes_held() const override { return memory_.bytes_held(); }
  void upload(const void* source, void* device, size_t bytes) override {
    if (bytes > 0) std::memcpy(device, source, bytes);
  }
  void read_back(const void* device, void* destination, size_t bytes) override {
    if (bytes > 0) std::memcpy(destination, device, bytes);
  }

  std::unique_ptr<PackedWeight> pack_weight(const WeightSpec& spec) override {
    const WeightExtent extent = check_weight(spec);
    const WeightShape shape = shape_of(spec, extent);
    auto weight = std::make_unique<ReferenceWeight>(shape, allocate(packed_bytes(shape)));
    const WeightCodes* codes = spec.parts.front().codes;
    for (int64_t i = 0; i < spec.experts * extent.n; ++i) {
      float* row = weight->row(i);
      pause_packing(spec);
      if (codes != nullptr) {
        const WeightColumn column = find_feature(spec.parts, i);
        reference_read_codes(*column.part->codes, column.feature, extent.k, row, weight->scales(i));
        if (!all_finite(row, DType::kF32, extent.k)) refuse_scales(*column.part);
        continue;
      }
      read_weight_row(spec, i, 0, extent.k, row);
      if (spec.quant.bits != 0) {
        reference_round_weights(spec.quant, extent.k, row, weight->scales(i));
        continue;
      }
      for (int64_t j = 0; j < extent.k; ++j) row[j] = round_to(spec.storage, row[j]);
    }
    for (int32_t expert = 0; spec.quant.reordered && expert < spec.experts; ++expert) {
      std::ranges::copy(expert_parts(spec, expert).front().codes->order(), weight->order(expert));
    }
    return weight;
  }

  std::string weight_layout(DType, const QuantFormat& quant) const override {
    if (rounds_rows(quant)) return "cpu-reference-2:rounded";
    return quant.activations == Activations::kWhole ? "cpu-reference-1:a16" : "cpu-reference-1";
  }

  size_t packed_bytes(const WeightShape& shape) const override {
    return checked_weight_bytes(shape, [&] {
      const auto rows =
          static_cast<uint64_t>((shape.n + (shape.quant.reordered ? 1 : 0)) * shape.experts);
      const auto columns = static_cast<uint64_t>(shape.k + reference_scales(shape.quant, shape.k));
      return checked_mul(rows * sizeof(float), columns);
    });
  }

  std::unique_ptr<PackedWeight> restore_weight(const WeightShape& shape, Buffer contents) override {
    HEADRACE_CHECK(contents.bytes == packed_bytes(shape), contents.bytes);
    auto weight = std::make_unique<ReferenceWeight>(shape, std::move(contents));
    if (shape.quant.reordered) check_order(weight->order(), shape.experts, shape.k);
    return weight;
  }

  TensorView pack_vector(const WeightPart& part, Buffer* owner) override {
    check_vector(part);
    *owner = allocate(static_cast<size_t>(part.n) * sizeof(float));
    read_vector(part, DType::kF32, static_cast<float*>(owner->data));
    return TensorView(owner->data, DType::kF32, {part.n});
  }

  size_t kv_block_bytes(const CacheLayout& layout) const override {
    return reference_kv_block_bytes(layout);
  }
  std::unique_ptr<KvCache> make_kv_cache(const CacheLayout& layout, int32_t num_blocks,
                                         int32_t num_slots) override {
    return make_reference_kv_cache(layout, num_blocks, num_slots, memory_);
  }
  size_t state_slot_bytes(const CacheLayout& layout) const override {
    check_cache_layout(layout, 0);
    return host_state_bytes(layout);
  }
  void add_host_blocks(KvCache& cache, int32_t count) override {
    dynamic_cast<ArrayKvCache&>(cache).add_host_blocks(
        count, memory_.allocate(kv_block_bytes(cache.layout()) * static_cast<size_t>(count)));
  }
  void add_host_slots(KvCache& cache, int32_t count) override {
    check_num_slots(cache.layout(), count);
    dynamic_cast<ArrayKvCache&>(cache).add_host_slots(
        count, memory_.allocate(host_state_bytes(cache.layout(), count)));
  }
  void copy_blocks(KvCache& cache, std::span<const BlockCopy> copies) override {
    const auto& arrays = dynamic_cast<const ArrayKvCache&>(cache);
    arrays.check_copies(copies);
    arrays.copy_parts(copies, 0, arrays.num_copy_parts());
  }

  void begin_step(const StepBatch& batch) override {
    check_batch(batch);
    batch_ = batch;
  }

  void embed(const PackedWeight& table, TensorView out) override {
    check_embed(batch_, table, out);
    const auto& weight = dynamic_cast<const ReferenceWeight&>(table);
    for (int64_t i = 0; i < out.rows(); ++i) {
      const float* from = weight.row(batch_.token_ids[static_cast<size_t>(i)]);
      std::copy_n(from, out.cols(), out.row<float>(i));
    }
  }

  void join(std::shared_ptr<RankGroup> group, int32_t rank) override {
    rank_.join(std::move(group), rank);
  }

  void embed_part(const PackedWeight& table, int32_t first, TensorView out) override {
    check_embed_part(batch_, table, first, out);
    const auto& weight = dynamic_cast<const ReferenceWeight&>(table);
    for (int64_t i = 0; i < out.rows(); ++i) {
      const int64_t id = int64_t{batch_.token_ids[static_cast<size_t>(i)]} - first;
      const bool own = id >= 0 && id < table.n();
      std::fill_n(out.row<float>(i), out.cols(), 0.0f);
      if (own) std::copy_n(weight.row(id), out.cols(), out.row<float>(i));
    }
  }

  void all_reduce(TensorView x) override {
    check_all_reduce(x);
    rank_.all_reduce(
        x,
        [](const float* from, int64_t n, float* out) {
          for (int64_t i = 0; i < n; ++i) out[i] += from[i];
        },
        [](int64_t count, const auto& part) { part(0, count); });
  }

  void gather_columns(TensorView x, TensorView out) override {
    check_gather_columns(x, out);
    rank_.gather_columns(x, out, [](int64_t count, const auto& part) { part(0, count); });
  }

  void rope_table(const RopeSpec& spec, TensorView out) override {
    check_rope_table(batch_, spec, out);
    for (size_t i = 0; i < batch_.positions.size(); ++i) {
      rope_angles(spec, batch_.rope_position(i), batch_.rope_lens[i],
                  out.row<float>(static_cast<int64_t>(i)));
    }
  }

  void rms_norm(TensorView x, TensorView weight, float eps, TensorView out) override {
    check_rms_norm(x, weight, out);
    for (int64_t i = 0; i < x.rows(); ++i) {
      reference_rms_norm_row(x.row<float>(i), weight, eps, x.cols(), out.row<float>(i));
    }
  }

  void add_rms_norm(TensorView residual, TensorView delta, TensorView weight, float eps,
                    TensorView out) override {
    check_add_rms_norm(residual, delta, weight, out);
    for (int64_t i = 0; i < residual.rows(); ++i) {
      float* row = residual.row<float>(i);
      for (int64_t j = 0; j < residual.cols(); ++j) row[j] += delta.row<float>(i)[j];
      reference_rms_norm_row(row, weight, eps, residual.cols(), out.row<float>(i));
    }
  }

  void layer_norm(TensorView x, TensorView weight, TensorView bias, float eps,
                  TensorView out) override {
    check_layer_norm(x, weight, bias, out);
    reference_layer_norm(x, weight, bias, eps, out);
  }

  void linear(TensorView x, const PackedWeight& weight, TensorView bias, TensorView out) override {
    check_linear(x, weight, bias, out, weight.n());
    for (int64_t i = 0; i < x.rows(); ++i) {
      for (int64_t j = 0; j < weight.n(); ++j) {
        out.row<float>(i)[j] = static_cast<float>(product(x, i, weight, j, bias));
      }
    }
  }

  void linear_gate_mul(TensorView x, const PackedWeight& weight, TensorView bias,
                       const GateSpec& spec, TensorView out) override {
    const int64_t half = weight.n() / 2;
    check_gate(spec);
    check_linear(x, weight, bias, out, half);
    for (int64_t i = 0; i < x.rows(); ++i) {
      for (int64_t j = 0; j < half; ++j) {
        const auto gate = static_cast<float>(product(x, i, weight, j, bias));
        const auto up = static_cast<float>(product(x, i, weight, half + j, bias));
        out.row<float>(i)[j] = reference_gate(spec, gate, up);
      }
    }
  }

  void gate_mul(TensorView gate_up, const GateSpec& spec, TensorView out) override {
    check_gate_mul(gate_up, spec, out);
    for (int64_t i = 0; i < out.rows(); ++i) {
      const float* gate = gate_up.row<float>(i);
      const float* up = gate + out.cols();
      for (int64_t j = 0; j < out.cols(); ++j) {
        out.row<float>(i)[j] = reference_gate(spec, gate[j], up[j]);
      }
    }
  }

  void route(TensorView x, const PackedWeight& gate, TensorView logit_bias, TensorView correction,
             const RouterSpec& spec, TensorView ids, TensorView weights) override {
    check_route(x, gate, logit_bias, correction, spec, ids, weights);
    for (int64_t i = 0; i < x.rows(); ++i) {
      std::vector<float> logits;
      for (int64_t e = 0; e < gate.n(); ++e) {
        logits.push_back(static_cast<float>(product(x, i, gate, e, logit_bias)));
      }
      reference_route_row(spec, logits,
                          correction.data == nullptr ? nullptr : correction.as<float>(),
                          ids.row<int32_t>(i), weights.row<float>(i));
    }
  }

  void experts(const Experts& args) override {
    check_experts(args);
    const int64_t cols = args.out.cols(), inner_cols = args.down.k();
    std::vector<float> inner(static_cast<size_t>(inner_cols));
    const TensorView inner_row(inner.data(), DType::kF32, {1, inner_cols});
    for (int64_t i = 0; i < args.x.rows(); ++i) {
      std::vector<double> sums(static_cast<size_t>(cols));
      for (int64_t slot = 0; slot < args.ids.cols(); ++slot) {
        const int64_t expert = args.own(args.ids.row<int32_t>(i)[slot], args.down.experts());
        if (args.first >= 0 && expert < 0) continue;
        HEADRACE_CHECK(expert >= 0 && expert < args.down.experts(), expert);
        for (int64_t j = 0; j < inner_cols; ++j) {
          const int64_t first = expert * args.gate_up.n() + j;
          const auto feature = [&](int64_t number) {
            return static_cast<float>(product(args.x, i, args.gate_up, number, args.gate_up_bias));
          };
          inner[size_t(j)] =
              args.gated() ? reference_gate(args.gate, feature(first), feature(first + inner_cols))
                           : static_cast<float>(reference_activation(
                                 args.gate.activation, static_cast<double>(feature(first))));
        }
        for (int64_t j = 0; j < cols; ++j) {
          const double sum = product(inner_row, 0, args.down, expert * cols + j, args.down_bias);
          sums[size_t(j)] += static_cast<double>(args.weights.row<float>(i)[slot]) * sum;
        }
      }
      for (int64_t j = 0; j < cols; ++j) {
        args.out.row<float>(i)[j] = static_cast<float>(sums[size_t(j)]);
      }
    }
  }

  void add(TensorView x, TensorView out) override {
    check_add(x, out);
    for (int64_t i = 0; i < out.rows(); ++i) {
      for (int64_t j = 0; j < out.cols(); ++j) out.row<float>(i)[j] += x.row<float>(i)[j];
    }
  }

  void scale(TensorView x, float factor, TensorView out) override {
    check_scale(x, factor, out);
    reference_scale(x, factor, out);
  }
  void mul_sigmoid(TensorView gate, TensorView out) override {
    check_mul_sigmoid(gate, out);
    reference_mul_sigmoid(gate, out);
  }
  void cap_logits(TensorView logits, float factor, float cap) override {
    check_cap_logits(logits, factor, cap);
    reference_cap_logits(logits, factor, cap);
  }

  void add_gated(TensorView x, TensorView gate, TensorView delta, TensorView out) override {
    check_add_gated(x, gate, delta, out);
    for (int64_t i = 0; i < out.rows(); ++i) {
      const double sum = dot(x.row<float>(i), gate.as<float>(), x.cols());
      const double factor = 1.0 / (1.0 + std::exp(-sum));
      float* row = out.row<float>(i);
      for (int64_t j = 0; j < out.cols(); ++j) {
        row[j] = static_cast<float>(row[j] + factor * static_cast<double>(delta.row<float>(i)[j]));
      }
    }
  }

  std::unique_ptr<PackedLora> pack_lora(const LoraSpec& spec) override {
    check_lora_spec(spec);
    return reference_pack_lora(spec, memory_);
  }

  void lora(TensorView x, std::span<const LoraGroup> groups, TensorView scratch,
            TensorView out) override {
    check_lora(x, groups, scratch, out);
    reference_lora(x, groups, out);
  }

  void rope_kv_write(TensorView qkv, const QkvSpec& spec, const RopeSpec& rope,
                     TensorView rope_table, KvCache& cache, int32_t layer) override {
    reference_rope_kv_write(batch_, qkv, spec, rope, rope_table, cache, layer);
  }

  void grouped_linear(const GroupedLinear& args) override {
    check_grouped_linear(args);
    const PackedWeight& weight = args.weight;
    for (int64_t group = 0; group < weight.experts(); ++group) {
      const TensorView x = args.x.columns(group * args.x_step, weight.k());
      const TensorView out = args.out.columns(group * args.out_step, weight.n());
      for (int64_t i = 0; i < x.rows(); ++i) {
        for (int64_t j = 0; j < weight.n(); ++j) {
          out.row<float>(i)[j] =
              static_cast<float>(product(x, i, weight, group * weight.n() + j, {}));
        }
      }
    }
  }

  void latent_write(TensorView q, TensorView kv, const LatentSpec& spec, const RopeSpec& rope,
                    TensorView rope_table, KvCache& cache, int32_t layer, TensorView out) override {
    reference_latent_write(batch_, q, kv, spec, rope, rope_table, cache, layer, out);
  }

  void rope_queries(TensorView q, const QkvSpec& spec, const RopeSpec& rope,
                    TensorView rope_table) override {
    reference_rope_queries(batch_, q, spec, rope, rope_table);
  }
  void attention(TensorView q, const AttentionSpec& spec, const KvCache& cache, int32_t layer,
                 TensorView out) override {
    reference_attention(batch_, q, spec, cache, layer, out);
  }

  void causal_conv(TensorView x, TensorView weight, TensorView bias, const ConvSpec& spec,
                   KvCache& cache, int32_t layer, TensorView out) override {
    check_causal_conv(batch_, step_rows(batch_), x, weight, bias, spec, cache, layer, out);
    reference_causal_conv(batch_, x, weight, bias, spec, cache, layer, out);
  }
  void delta_prepare(TensorView qkv, TensorView b, TensorView a, TensorView a_log,
                     TensorView dt_bias, const DeltaSpec& spec, TensorView gates) override {
    check_delta_prepare(qkv, b, a, a_log, dt_bias, spec, gates);
    reference_delta_prepare(qkv, b, a, a_log, dt_bias, spec, gates);
  }
  void delta_rule(TensorView qkv, TensorView gates, const DeltaSpec& spec, KvCache& cache,
                  int32_t layer, TensorView out) override {
    check_delta_rule(batch_, step_rows(batch_), qkv, gates, spec, cache, layer, out);
    reference_delta_rule(batch_, qkv, gates, spec, cache, layer, out);
  }
  void ssm_scan(const ScanArgs& args, KvCache& cache, int32_t layer, TensorView out) override {
    check_ssm_scan(batch_, step_rows(batch_), args, cache, layer, out);
    reference_ssm_scan(batch_, args, cache, layer, out);
  }
  void gated_norm(TensorView x, TensorView gate, TensorView weight, const GatedNormSpec& spec,
                  TensorView out) override {
    check_gated_norm(x, gate, weight, spec, out);
    reference_gated_norm(x, gate, weight, spec, out);
  }
  void multiply(TensorView a, TensorView b, TensorView out) override {
    check_multiply(a, b, out);
    reference_multiply(a, b, out);
  }

  void gather_rows(TensorView x, std::span<const int32_t> rows, TensorView out) override {
    check_gather_rows(x, rows, out);
    for (size_t i = 0; i < rows.size(); ++i) {
      std::copy_n(x.row<float>(rows[i]), x.cols(), out.row<float>(static_cast<int64_t>(i)));
    }
  }

  void activate(Activation kind, TensorView x) override {
    check_activate(kind, x);
    reference_activate(kind, x);
  }
  void rotate(TensorView x, TensorView table, int32_t heads, int32_t head_dim) override {
    check_rotate(x, table, heads, head_dim);
    reference_rotate(x, table, heads, head_dim);
  }
  void scatter_rows(TensorView x, std::span<const int32_t> rows, TensorView out) override {
    check_scatter_rows(x, rows, out);
    for (size_t i = 0; i < rows.size(); ++i) {
      std::copy_n(x.row<float>(static_cast<int64_t>(i)), x.cols(), out.row<float>(rows[i]));
    }
  }
  void segment_attention(const SegmentAttention& args) override {
    check_segment_attention(args);
    reference_segment_attention(args);
  }

  void sample(TensorView logits, int32_t vocab_size, std::span<const SampleRow> rows,
              std::span<SampleResult> results) override {
    reference_sample(logits, vocab_size, rows, results);
  }

 private:
  double product(const TensorView& x, int64_t row, const PackedWeight& weight, int64_t col,
                 const TensorView& bias) const {
    const auto& stored = dynamic_cast<const ReferenceWeight&>(weight);
    const float* from = x.row<float>(row);
    std::vector<float> reordered;
    if (stored.quant().reordered) {
      const int32_t* order = stored.order(col / weight.n());
      for (int64_t i = 0; i < weight.k(); ++i) reordered.push_back(from[order[i]]);
      from = reordered.data();
    }
    const double sum = dot_stored(stored, from, col);
    return bias.data == nullptr ? sum : sum + static_cast<double>(bias.as<float>()[col]);
  }

  double dot_stored(const ReferenceWeight& weight, const float* x, int64_t col) const {
    const QuantFormat& format = weight.quant();
    const float* const row = weight.row(col);
    if (format.bits == 0) return dot(x, row, weight.k());
    if (float8_sum_ != nullptr && has_float8(format) && weight.experts() == 1) {
      return reference_float8_dot(format, float8_sum_, x, row, weight.scales(col), weight.k());
    }
    return reference_quant_dot(format, x, row, weight.k());
  }

  const Activations quant_activations_;
  const bool code_products_;
  const Float8Sum float8_sum_;
  HostMemory memory_;
  HostRank rank_;
  StepBatch batch_;
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend(size_t memory_limit, Activations quant_activations,
                                                bool code_products, Float8Sum float8_sum) {
  return std::make_unique<ReferenceBackend>(memory_limit, quant_activations, code_products,
                                            float8_sum);
}

}  // namespace headrace
