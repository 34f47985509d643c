#include "model/blocks/attention_block.h"

#include "base/check.h"
#include "model/blocks/carver.h"
#include "model/blocks/join.h"
#include "model/sources/weight_slice.h"

namespace headrace {

namespace {

/// Numbers of a row's queries, and of the keys and values that the layer writes.
int64_t qkv_columns(const AttentionSpec& spec, bool writes) {
  const int64_t kv_heads = writes ? spec.num_kv_heads : 0;
  return (spec.num_heads + 2 * kv_heads) * spec.head_dim;
}

class AttentionBlock final : public Mixer {
 public:
  AttentionBlock(const AttentionSources& sources, WeightReader& reader, int32_t layer)
      : attention_(sources.attention),
        gate_(sources.gate),
        writes_(sources.reads < 0),
        rope_(sources.rope),
        rope_index_(sources.rope_index),
        layer_(layer),
        qkv_(load_linear(reader, sources.qkv)),
        q_norm_(reader.vector(sources.q_norm)),
        k_norm_(reader.vector(sources.k_norm)),
        o_(load_linear(reader, sources.o)),
        sinks_(reader.vector(sources.sinks)),
        heads_{.num_heads = attention_.num_heads,
               .num_kv_heads = attention_.num_kv_heads,
               .head_dim = attention_.head_dim,
               .q_norm = q_norm_.view,
               .k_norm = k_norm_.view,
               .norm_eps = sources.norm_eps,
               .norm = sources.qk_norm,
               .v_norm = sources.v_norm,
               .q_factor = sources.q_factor} {
    attention_.sinks = sinks_.view;
  }

  const PackedWeight& first_weight() const override { return *qkv_.weight; }

  void place(const StepLimits& limits, Carver& carver) override {
    qkv_rows_ = carver.matrix(limits.rows, qkv_.weight->n(), limits.activation);
    o_.gather = place_gather(o_.gathers, o_.weight->n(), o_.weight->k(), limits, carver);
  }

  void mix(const BlockContext& context, const StepRows& step, KvCache& cache) override {
    context.backend.expect(*o_.weight);
    write(context, step, cache);
    const TensorView rows = qkv_rows_.first_rows(step.rows());
    context.backend.attention(rows.columns(0, step.mixed.cols()), attention_, cache, layer_,
                              step.mixed);
    if (!gate_) return;
    context.backend.mul_sigmoid(rows.columns(qkv_columns(attention_, writes_), step.mixed.cols()),
                                step.mixed);
  }

  void write(const BlockContext& context, const StepRows& step, KvCache& cache) override {
    const TensorView rows = qkv_rows_.first_rows(step.rows());
    run_linear(context, qkv_, step.input, rows);
    const TensorView heads = rows.columns(0, qkv_columns(attention_, writes_));
    if (writes_) {
      context.backend.rope_kv_write(heads, heads_, rope_, rope_table(step), cache, layer_);
    } else {
      context.backend.rope_queries(heads, heads_, rope_, rope_table(step));
    }
  }

  void add(const BlockContext& context, const StepRows& step, const Tail& tail) override {
    context.backend.expect(tail.weight);
    join(context, o_, step.mixed, step, tail);
  }

 private:
  TensorView rope_table(const StepRows& step) const {
    return rope_index_ < 0 ? TensorView() : step.ropes[static_cast<size_t>(rope_index_)];
  }

  AttentionSpec attention_;
  bool gate_, writes_;
  RopeSpec rope_;
  int32_t rope_index_, layer_;
  Linear qkv_;
  DeviceVector q_norm_, k_norm_;
  Linear o_;
  DeviceVector sinks_;
  QkvSpec heads_;
  TensorView qkv_rows_;  // [T, (nq + 2 nkv) d], and the gates
};

}  // namespace

void AttentionSources::share(const RankPlace& place) {
  if (!q_norm.empty() && qk_norm == QkNorm::kRow) {
    throw_error(ErrorCode::kUnsupported,
                "the norms of this model's queries and keys take all heads ", "together, which ",
                place.count, " devices don't have in one place: leave tensor_parallel_size out.");
  }
  const int64_t d = attention.head_dim, heads = attention.num_heads, kv = attention.num_kv_heads;
  const SourceRange own_kv = share_kv_heads(heads, kv, place);
  const int64_t own = heads / place.count;
  const SourceRange q = {own * place.index * d, own * d};
  std::vector<SourceRange> rows = {q};
  if (reads < 0) {
    rows.push_back({(heads + own_kv.first) * d, own_kv.count * d});
    rows.push_back({(heads + kv + own_kv.first) * d, own_kv.count * d});
  }
  if (gate) rows.push_back({qkv_columns(attention, reads < 0) + q.first, q.count});
  slice_rows(qkv.matrix, rows);
  if (!qkv.bias.empty()) qkv.bias.ranges = rows;
  share_inputs(o, q, place);
  if (!sinks.empty()) sinks.ranges = {{own * place.index, own}};
  whole_kv_heads = attention.num_kv_heads;
  attention.num_heads = static_cast<int32_t>(own);
  attention.num_kv_heads = static_cast<int32_t>(own_kv.count);
}

PagedRows AttentionSources::cache_rows() const {
  if (reads >= 0) return {};
  PagedRows out = kv_rows(attention.num_kv_heads, attention.head_dim, DType::kF32);
  if (attention.causal) out.window = attention.window;  // else all is read in the step that writes
  return out;
}

PagedRows AttentionSources::whole_cache_rows() const {
  PagedRows out = cache_rows();
  if (out.num_kv_heads > 0 && whole_kv_heads > 0) out.num_kv_heads = whole_kv_heads;
  return out;
}

void AttentionSources::measure(const StepLimits& limits, Carver& carver) const {
  carver.matrix(limits.rows, qkv.matrix.n(), limits.activation);
  place_gather(o.gathers, o.matrix.n(), o.matrix.k, limits, carver);
}

std::unique_ptr<Mixer> AttentionSources::load(WeightReader& reader, int32_t layer) const {
  return std::make_unique<AttentionBlock>(*this, reader, layer);
}

}  // namespace headrace
