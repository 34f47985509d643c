#include "cuda/kernels/ranks/gather_columns.h"

#include <algorithm>

#include "cuda/kernels/ranks/collect.cuh"

namespace headrace::cuda {

namespace {

template <class T>
void gather(const GatherColumnsArgs& args, Stream stream) {
  const RankLinks& links = args.links;
  const int64_t rows = args.part.rows, cols = args.part.cols;
  const auto* const part = static_cast<const T*>(args.part.data);
  auto* const out = static_cast<T*>(args.out.data);
  int64_t widest = 1;
  for (int r = 0; r < links.count; ++r) {
    widest = std::max(widest, args.begins[r + 1] - args.begins[r]);
  }
  // As many rows at a time as fit into everybody's piece.
  const int64_t most = links.piece_bytes / (widest * static_cast<int64_t>(sizeof(T)));
  HEADRACE_CHECK(most >= 1, widest, " columns");
  Parts parts;
  std::copy(std::begin(args.begins), std::end(args.begins), parts.begins);
  for (int64_t row = 0; row < rows; row += most) {
    parts.rows = least(most, rows - row);
    const RankLinks placed =
        place_parts(links, parts.rows * widest * static_cast<int64_t>(sizeof(T)));
    put_part(placed, part + row * args.part.stride, args.part.stride, parts.rows, cols, stream);
    bring_parts(placed, stream);
    collect_parts(placed, parts, out == nullptr ? nullptr : out + row * args.out.stride,
                  args.out.stride, stream);
  }
}

}  // namespace

void gather_columns(const GatherColumnsArgs& args, Stream stream) {
  const RankLinks& links = args.links;
  const int64_t rows = args.part.rows, cols = args.part.cols, all = args.begins[links.count];
  HEADRACE_CHECK(cols == args.begins[links.rank + 1] - args.begins[links.rank], cols);
  HEADRACE_CHECK(args.out.data == nullptr || (args.out.rows == rows && args.out.cols == all),
                 args.out.rows, " x ", args.out.cols);
  with_element(args.dtype, [&](auto element) { gather<decltype(element)>(args, stream); });
}

}  // namespace headrace::cuda
