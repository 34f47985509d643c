#include "model/decoder/embedding_tables.h"

#include "base/check.h"
#include "model/blocks/join.h"

namespace headrace {

namespace {

TensorView as_table(const DeviceVector& numbers, int64_t hidden) {
  const TensorView& all = numbers.view;
  if (all.data == nullptr) return TensorView(nullptr, DType::kF32, {0, hidden});
  return TensorView(all.data, all.dtype, {all.shape.elements() / hidden, hidden});
}

}  // namespace

EmbeddingTables::EmbeddingTables(WeightReader& reader, const ModelSources& sources,
                                 int32_t max_rows)
    : position_numbers_(reader.vector(sources.positions)),
      type_numbers_(reader.vector(sources.token_types)),
      positions_(as_table(position_numbers_, sources.embedding.k)),
      token_types_(as_table(type_numbers_, sources.embedding.k)),
      norm_(reader.norm(sources.embedding_norm)),
      first_type_(token_types_.rows() > 0 ? static_cast<size_t>(max_rows) : 0) {}

void EmbeddingTables::add(const BlockContext& context, const StepBatch& batch,
                          const StepRows& step) const {
  const auto add_rows = [&](const TensorView& table, std::span<const int32_t> rows) {
    HEADRACE_CHECK(std::cmp_equal(rows.size(), step.rows()), rows.size());
    context.backend.gather_rows(table, rows, step.delta);
    context.backend.add(step.delta, step.residual);
  };
  if (token_types_.rows() > 0) {
    const bool named = !batch.token_types.empty();
    add_rows(token_types_,
             named ? batch.token_types : std::span(first_type_).first(batch.token_ids.size()));
  }
  if (positions_.rows() > 0) add_rows(positions_, batch.positions);
  if (!norm_.empty()) run_norm(context, step.residual, norm_.view(), step.residual);
}

}  // namespace headrace
