#include "backend/contract/op_checks_vision.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "backend/reference/reference_vision.h"

namespace headrace {

void CpuBackend::segment_attention(const SegmentAttention& args) {
  check_segment_attention(args);
  for_rows(args.q.rows(), int64_t{1} << 20, [&](int64_t begin, int64_t end) {
    SegmentAttention part = args;
    part.q = args.q.rows_from(begin, end - begin);
    part.out = args.out.rows_from(begin, end - begin);
    part.first = args.first + static_cast<int32_t>(begin);
    reference_segment_attention(part);
  });
}

}  // namespace headrace
