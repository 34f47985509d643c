#pragma once

// A rank whose memory is host memory, so that other ranks can read and write it directly.

#include <cstdint>
#include <memory>
#include <span>

#include "backend/ranks/rank_group.h"
#include "tensor/tensor_view.h"

namespace headrace {

class HostRank {
 public:
  /// out[i] += x[i] of n float32.
  using Add = void (*)(const float* x, int64_t n, float* out);

  void join(std::shared_ptr<RankGroup> group, int32_t rank);

  /// Backend::all_reduce. loop(count, part) does this rank's share of the work: it calls
  /// part(begin, end) on ranges that cover [0, count) once, in any order, on any threads.
  template <class Loop>
  void all_reduce(const TensorView& x, Add add, const Loop& loop) {
    const Sum sum = begin_sum(x);
    loop(sum.count,
         [&](int64_t begin, int64_t end) { sum.run(sum.first + begin, sum.first + end, add); });
    group_->meet();
  }

  /// Backend::gather_columns; `loop` calls its part on ranges of the rows.
  template <class Loop>
  void gather_columns(const TensorView& x, const TensorView& out, const Loop& loop) {
    const Gather gather = begin_gather(x, out);
    loop(x.rows(), [&](int64_t begin, int64_t end) { gather.run(begin, end); });
    group_->meet();
  }

 private:
  using All = std::span<const RankGroup::Shown>;

  /// This rank sums the numbers [first, first + count) of a matrix, for all ranks.
  struct Sum {
    All all;
    int64_t first, count;
    void run(int64_t begin, int64_t end, Add add) const;
  };
  /// This rank's columns begin with column `first`.
  struct Gather {
    All all;
    TensorView x;
    int64_t first;
    void run(int64_t begin, int64_t end) const;
  };

  Sum begin_sum(const TensorView& x);
  Gather begin_gather(const TensorView& x, const TensorView& out);

  std::shared_ptr<RankGroup> group_;  // null: it has not joined a group
  int32_t rank_ = 0;
};

}  // namespace headrace
