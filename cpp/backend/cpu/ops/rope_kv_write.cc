#include "backend/checks/op_checks_attention.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/kv/kv_cache.h"

namespace headrace {
namespace {

/// Where a row's keys and values go.
struct Place {
  int32_t block;
  int32_t slot;
};

void find_places(const StepBatch& step, int32_t group, int32_t block_size, Place* places) {
  for (const SeqSlice& seq : step.seqs) {
    const std::span<const int32_t> table = seq.blocks[group];
    for (int32_t i = 0; i < seq.num_rows; ++i) {
      const int32_t position = seq.start_pos + i;
      places[seq.first_row + i] = {table[static_cast<size_t>(position / block_size)],
                                   position % block_size};
    }
  }
}

const float* weight_of(const TensorView& norm) {
  return norm.data == nullptr ? nullptr : norm.as<float>();
}

}  // namespace

void CpuBackend::rope_kv_write(TensorView qkv, const QkvSpec& spec, const RopeSpec& rope,
                               TensorView rope_table, KvCache& cache, int32_t layer) {
  check_rope_kv_write(step_, qkv, spec, rope, rope_table, cache, layer);
  const auto& tiled = dynamic_cast<const CpuKvCache&>(cache);
  const KvFormat& format = tiled.format(*isa_->attention);
  auto* places = reinterpret_cast<Place*>(scratch(sizeof(Place) * step_.positions.size()));
  find_places(step_, cache.layout().place(layer).group, cache.block_size(), places);

  const int32_t heads = spec.num_kv_heads;
  const int32_t group = spec.num_heads / heads;
  const int64_t d = spec.head_dim;
  KvWriteTask common{};
  common.num_queries = group;
  if (spec.norm == QkNorm::kRow) {
    const TensorView q = qkv.columns(0, spec.num_heads * d);
    const TensorView k = qkv.columns(spec.num_heads * d, heads * d);
    if (spec.q_norm.data != nullptr) rms_norm(q, spec.q_norm, spec.norm_eps, q);
    if (spec.k_norm.data != nullptr) rms_norm(k, spec.k_norm, spec.norm_eps, k);
  } else {
    common.q_norm = weight_of(spec.q_norm);
    common.k_norm = weight_of(spec.k_norm);
  }
  common.norms_rotated = spec.norm == QkNorm::kHeadAfterRope;
  common.v_norm = spec.v_norm;
  common.norm_eps = spec.norm_eps;
  common.rotary_dim = rope.rotary_dim;
  common.interleaved = rope.style == RopeStyle::kInterleaved;
  // Rotating and converting costs about four times what touching cached memory does.
  for_rows(qkv.rows() * heads, (group + 4) * d * 16, [&](int64_t begin, int64_t end) {
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
