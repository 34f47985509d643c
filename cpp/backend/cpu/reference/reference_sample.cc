#include "backend/cpu/reference/reference_sample.h"

namespace headrace {

void reference_sample(TensorView logits, int32_t vocab_size, std::span<const SampleRow> rows,
                      std::span<SampleResult> results) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].greedy) throw_error(ErrorCode::kUnsupported, "only greedy sampling is here yet");
    const float* row = logits.row<float>(rows[i].logits_row);
    int32_t best = 0;
    for (int32_t id = 1; id < vocab_size; ++id) {
      if (row[id] > row[best]) best = id;
    }
    results[i] = SampleResult{.token = best};
  }
}

}  // namespace headrace
