#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/reference/reference_sample.h"

namespace headrace {

void CpuBackend::sample(TensorView logits, int32_t vocab_size, std::span<const SampleRow> rows,
                        std::span<SampleResult> results) {
  reference_sample(logits, vocab_size, rows, results);
}

}  // namespace headrace
