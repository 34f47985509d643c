#include "backend/checks/op_checks_attention.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/kv/kv_cache.h"
#include "backend/cpu/ops/token_places.h"

namespace headrace {
namespace {

const float* weight_of(const TensorView& norm) {
  return norm.data == nullptr ? nullptr : norm.as<float>();
}

/// What the tasks of an op have in common. Norms of whole rows aren't theirs.
KvWriteTask common_task(const QkvSpec& spec, const RopeSpec& rope) {
  KvWriteTask out{};
  out.head_dim = spec.head_dim;
  if (spec.norm != QkNorm::kRow) {
    out.q_norm = weight_of(spec.q_norm);
    out.k_norm = weight_of(spec.k_norm);
  }
  out.norms_rotated = spec.norm == QkNorm::kHeadAfterRope;
  out.v_norm = spec.v_norm;
  out.norm_eps = spec.norm_eps;
  out.rotary_dim = rope.rotary_dim;
  out.interleaved = rope.style == RopeStyle::kInterleaved;
  return out;
}

// Rotating and converting costs about four times what touching cached memory does.
constexpr int64_t kNumberCost = 16;

}  // namespace

void CpuBackend::normalize_rows(const TensorView& x, const TensorView& weight,
                                const QkvSpec& spec) {
  if (weight.data != nullptr) rms_norm(x, weight, spec.norm_eps, x);
}

void CpuBackend::rope_queries(TensorView q, const QkvSpec& spec, const RopeSpec& rope,
                              TensorView rope_table) {
  check_rope_queries(step_, q, spec, rope, rope_table);
  KvWriteTask common = common_task(spec, rope);
  common.num_queries = 1;
  if (spec.norm == QkNorm::kRow) normalize_rows(q, spec.q_norm, spec);
  const int64_t d = spec.head_dim;
  for_rows(q.rows() * spec.num_heads, d * kNumberCost, [&](int64_t begin, int64_t end) {
    KvWriteTask task = common;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t row = unit / spec.num_heads;
      task.queries = q.row<float>(row) + unit % spec.num_heads * d;
      task.cos_sin = rope.rotary_dim > 0 ? rope_table.row<float>(row) : nullptr;
      task.q_factor = spec.q_factor.at(step_.positions[static_cast<size_t>(row)]);
      isa_->attention->rotate_queries(task);
    }
  });
}

void CpuBackend::rope_kv_write(TensorView qkv, const QkvSpec& spec, const RopeSpec& rope,
                               TensorView rope_table, KvCache& cache, int32_t layer) {
  check_rope_kv_write(step_, qkv, spec, rope, rope_table, cache, layer);
  const auto& tiled = dynamic_cast<const CpuKvCache&>(cache);
  const KvFormat& format = tiled.format(*isa_->attention);
  auto* places =
      reinterpret_cast<TokenPlace*>(scratch(sizeof(TokenPlace) * step_.positions.size()));
  find_places(step_, cache.layout().place(layer).group, cache.block_size(), places);

  const int32_t heads = spec.num_kv_heads;
  const int32_t group = spec.num_heads / heads;
  const int64_t d = spec.head_dim;
  KvWriteTask common = common_task(spec, rope);
  common.num_queries = group;
  if (spec.norm == QkNorm::kRow) {
    normalize_rows(qkv.columns(0, spec.num_heads * d), spec.q_norm, spec);
    normalize_rows(qkv.columns(spec.num_heads * d, heads * d), spec.k_norm, spec);
  }
  for_rows(qkv.rows() * heads, (group + 4) * d * kNumberCost, [&](int64_t begin, int64_t end) {
    KvWriteTask task = common;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t row = unit / heads;
      const auto head = static_cast<int32_t>(unit % heads);
      const CpuKvCache::HeadPlace place = tiled.find_head(layer, head);
      task.cache = place.layer;
      task.kv_head = place.head;
      float* x = qkv.row<float>(row);
      task.queries = x + head * group * d;
      task.key = x + (spec.num_heads + head) * d;
      task.value = x + (spec.num_heads + heads + head) * d;
      task.cos_sin = rope.rotary_dim > 0 ? rope_table.row<float>(row) : nullptr;
      task.q_factor = spec.q_factor.at(step_.positions[static_cast<size_t>(row)]);
      task.block = places[row].block;
      task.slot = places[row].slot;
      format.write(task);
    }
  });
}

}  // namespace headrace
