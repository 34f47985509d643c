#include "model/blocks/latent/latent_block.h"

#include "model/blocks/carver.h"
#include "model/blocks/join.h"
#include "model/sources/weight_slice.h"

namespace headrace {

namespace {

struct LatentScratch {
  TensorView q_down;  // [T, Q]; without q_down [T, 0]
  TensorView q;       // [T, nq (Dn + Dr)]
  TensorView kv;      // [T, R + Dr]
  TensorView wide;    // [T, nq row_dim] queries as rows of the cache
  TensorView found;   // [T, nq row_dim] what they gather
};

LatentScratch place_rows(const LatentSpec& spec, int64_t q_rank, const StepLimits& limits,
                         Carver& carver) {
  const auto matrix = [&](int64_t cols) {
    return carver.matrix(limits.rows, cols, limits.activation);
  };
  LatentScratch out;
  out.q_down = matrix(q_rank);
  out.q = matrix(int64_t{spec.num_heads} * spec.query_dim());
  out.kv = matrix(int64_t{spec.rank} + spec.rope_dim);
  out.wide = matrix(int64_t{spec.num_heads} * spec.row_dim());
  out.found = matrix(int64_t{spec.num_heads} * spec.row_dim());
  return out;
}

class LatentBlock final : public Mixer {
 public:
  LatentBlock(const LatentSources& sources, WeightReader& reader, int32_t layer)
      : spec_(sources.spec),
        attention_{.num_heads = spec_.num_heads,
                   .num_kv_heads = 1,
                   .head_dim = spec_.row_dim(),
                   .scale = sources.scale},
        rope_(sources.rope),
        rope_index_(sources.rope_index),
        layer_(layer),
        value_dim_(sources.value_dim),
        q_rank_(sources.q_down.matrix.empty() ? 0 : sources.q_down.matrix.n()),
        q_down_(load_linear(reader, sources.q_down)),
        q_norm_(reader.vector(sources.q_norm)),
        q_(load_linear(reader, sources.q)),
        kv_down_(load_linear(reader, sources.kv_down)),
        kv_norm_(reader.vector(sources.kv_norm)),
        key_up_(reader.matrix(sources.key_up)),
        value_up_(reader.matrix(sources.value_up)),
        o_(load_linear(reader, sources.o)) {
    spec_.norm = kv_norm_.view;
  }

  const PackedWeight& first_weight() const override {
    return q_rank_ > 0 ? *q_down_.weight : *q_.weight;
  }

  void place(const StepLimits& limits, Carver& carver) override {
    scratch_ = place_rows(spec_, q_rank_, limits, carver);
    o_.gather = place_gather(o_.gathers, o_.weight->n(), o_.weight->k(), limits, carver);
  }

  void mix(const BlockContext& context, const StepRows& step, KvCache& cache) override {
    Backend& backend = context.backend;
    const int64_t rows = step.rows(), row_dim = spec_.row_dim();
    const TensorView q = scratch_.q.first_rows(rows), kv = scratch_.kv.first_rows(rows);
    const TensorView wide = scratch_.wide.first_rows(rows), found = scratch_.found.first_rows(rows);
    make_queries(context, step, q);
    run_linear(context, kv_down_, step.input, kv);
    backend.grouped_linear({q, spec_.query_dim(), *key_up_, wide, row_dim});
    backend.latent_write(q, kv, spec_, rope_, step.ropes[static_cast<size_t>(rope_index_)], cache,
                         layer_, wide);
    backend.attention(wide, attention_, cache, layer_, found);
    backend.grouped_linear({found, row_dim, *value_up_, step.mixed, value_dim_});
  }

  void add(const BlockContext& context, const StepRows& step, const Tail& tail) override {
    context.backend.expect(tail.weight);
    join(context, o_, step.mixed, step, tail);
  }

 private:
  void make_queries(const BlockContext& context, const StepRows& step, const TensorView& q) const {
    if (q_rank_ == 0) return run_linear(context, q_, step.input, q);
    const TensorView down = scratch_.q_down.first_rows(step.rows());
    run_linear(context, q_down_, step.input, down);
    context.backend.rms_norm(down, q_norm_.view, spec_.norm_eps, down);
    run_linear(context, q_, down, q);
  }

  LatentSpec spec_;
  AttentionSpec attention_;
  RopeSpec rope_;
  int32_t rope_index_, layer_, value_dim_;
  int64_t q_rank_;  // Q; 0: there is no q_down
  Linear q_down_;
  DeviceVector q_norm_;
  Linear q_, kv_down_;
  DeviceVector kv_norm_;
  std::unique_ptr<PackedWeight> key_up_, value_up_;
  Linear o_;
  LatentScratch scratch_;
};

}  // namespace

void LatentSources::share(const RankPlace& place) {
  const SourceRange own = share_range(spec.num_heads, 1, place, "a number of heads");
  const int64_t d = spec.query_dim();
  slice_rows(q.matrix, {{own.first * d, own.count * d}});
  slice_experts(key_up, own);
  slice_experts(value_up, own);
  share_inputs(o, {own.first * value_dim, own.count * value_dim}, place);
  spec.num_heads = static_cast<int32_t>(own.count);
}

void LatentSources::measure(const StepLimits& limits, Carver& carver) const {
  place_rows(spec, q_down.matrix.empty() ? 0 : q_down.matrix.n(), limits, carver);
  place_gather(o.gathers, o.matrix.n(), o.matrix.k, limits, carver);
}

std::unique_ptr<Mixer> LatentSources::load(WeightReader& reader, int32_t layer) const {
  return std::make_unique<LatentBlock>(*this, reader, layer);
}

}  // namespace headrace
