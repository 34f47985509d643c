#include "backend/checks/op_checks_attention.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/ops/sample_row.h"

namespace headrace {

void CpuBackend::sample(TensorView logits, int32_t vocab_size, std::span<const SampleRow> rows,
                        std::span<SampleResult> results) {
  check_sample(logits, vocab_size, rows, results);
  // Fewer rows than threads: the threads share each row's passes instead.
  const bool share_rows = static_cast<int64_t>(rows.size()) < pool_.num_threads();
  const VocabularyPasses passes(*isa_->sample, share_rows ? &pool_ : nullptr, vocab_size);
  const size_t bytes = sample_row_scratch_bytes(vocab_size);
  std::byte* memory = scratch(bytes * (share_rows ? 1 : static_cast<size_t>(pool_.num_threads())));
  if (reserving_) return;
  const auto run = [&](int64_t i, int32_t thread) {
    const SampleRow& row = rows[static_cast<size_t>(i)];
    sample_row(passes, logits.row<float>(row.logits_row), row,
               memory + static_cast<size_t>(thread) * bytes, results[static_cast<size_t>(i)]);
  };
  if (share_rows) {
    for (size_t i = 0; i < rows.size(); ++i) run(static_cast<int64_t>(i), 0);
  } else {
    pool_.parallel_for(static_cast<int64_t>(rows.size()), 1,
                       [&](int64_t i, int64_t, int32_t thread) { run(i, thread); });
  }
}

}  // namespace headrace
