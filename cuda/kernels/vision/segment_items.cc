#include <algorithm>

#include "cuda/kernels/vision/segment_attention.h"

namespace headrace::cuda {

std::vector<SegmentItem> segment_items(std::span<const int32_t> ends) {
  std::vector<SegmentItem> out;
  int32_t first = 0;
  for (const int32_t end : ends) {
    for (int32_t row = first; row < end; row += std::min(kSegmentRows, end - row)) {
      out.push_back({row, row + std::min(kSegmentRows, end - row), first, end});
    }
    first = end;
  }
  return out;
}

}  // namespace headrace::cuda
