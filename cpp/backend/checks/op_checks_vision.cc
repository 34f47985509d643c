#include "backend/checks/op_checks_vision.h"

#include <vector>

#include "backend/checks/tensor_checks.h"
#include "base/check.h"

namespace headrace {

void check_activate(Activation kind, const TensorView& x, DType act) {
  HEADRACE_CHECK(kind <= Activation::kTanh, static_cast<int>(kind));
  check_matrix(x, x.shape[0], x.shape[1], act);
}

void check_rotate(const TensorView& x, const TensorView& table, int32_t heads, int32_t head_dim,
                  DType act) {
  HEADRACE_CHECK(heads >= 1 && head_dim >= 2 && head_dim % 2 == 0, heads, " of ", head_dim);
  check_matrix(x, x.shape[0], int64_t{heads} * head_dim, act);
  check_matrix(table, x.rows(), head_dim, DType::kF32);
}

void check_scatter_rows(const TensorView& x, std::span<const int32_t> rows, const TensorView& out,
                        DType act) {
  check_matrix(out, out.shape[0], out.shape[1], act);
  check_matrix(x, static_cast<int64_t>(rows.size()), out.cols(), act);
  std::vector<bool> taken(static_cast<size_t>(out.rows()));
  for (const int32_t row : rows) {
    HEADRACE_CHECK(row >= 0 && row < out.rows(), row, " of ", out.rows());
    HEADRACE_CHECK(!taken[static_cast<size_t>(row)], "row ", row, " twice");
    taken[static_cast<size_t>(row)] = true;
  }
}

void check_segment_attention(const SegmentAttention& args, DType act) {
  HEADRACE_CHECK(args.heads >= 1 && args.head_dim >= kSegmentHeadUnit &&
                     args.head_dim <= kMaxSegmentHead && args.head_dim % kSegmentHeadUnit == 0,
                 args.heads, " of ", args.head_dim);
  HEADRACE_CHECK(args.products == DType::kF32 || args.products == DType::kBF16,
                 dtype_name(args.products));
  const int64_t cols = int64_t{args.heads} * args.head_dim, total = args.k.shape[0];
  check_matrix(args.k, total, cols, act);
  check_matrix(args.v, total, cols, act);
  check_matrix(args.q, args.q.shape[0], cols, act);
  check_matrix(args.out, args.q.rows(), cols, act);
  HEADRACE_CHECK(args.first >= 0 && args.q.rows() <= total - args.first, args.first, " + ",
                 args.q.rows(), " of ", total);
  int64_t end = 0;
  for (const int32_t next : args.segment_ends) {
    HEADRACE_CHECK(next > end, next, " behind ", end);
    end = next;
  }
  HEADRACE_CHECK(end == total, end, " of ", total);
}

}  // namespace headrace
