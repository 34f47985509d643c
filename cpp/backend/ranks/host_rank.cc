#include "backend/ranks/host_rank.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace headrace {

void HostRank::join(std::shared_ptr<RankGroup> group, int32_t rank) {
  HEADRACE_CHECK(group_ == nullptr && rank >= 0 && rank < group->count(), rank);
  group_ = std::move(group);
  rank_ = rank;
}

HostRank::Sum HostRank::begin_sum(const TensorView& x) {
  HEADRACE_CHECK(group_ != nullptr);
  const All all = group_->exchange(rank_, {.x = x});
  for (const RankGroup::Shown& other : all) {
    HEADRACE_CHECK(other.x.shape == x.shape, other.x.rows(), " x ", other.x.cols(), ", here ",
                   x.rows(), " x ", x.cols());
  }
  const int64_t elements = x.shape.elements(), count = group_->count();
  const int64_t first = elements * rank_ / count;
  return {all, first, elements * (rank_ + 1) / count - first};
}

void HostRank::Sum::run(int64_t begin, int64_t end, Add add) const {
  constexpr int64_t kChunk = 1024;  // stays in the first cache until all have it
  const TensorView& to = all.front().x;
  while (begin < end) {
    const int64_t row = begin / to.cols(), col = begin % to.cols();
    const int64_t n = std::min({kChunk, end - begin, to.cols() - col});
    float* const sum = to.row<float>(row) + col;
    for (const auto& other : all.subspan(1)) add(other.x.row<float>(row) + col, n, sum);
    for (const auto& other : all.subspan(1)) std::copy_n(sum, n, other.x.row<float>(row) + col);
    begin += n;
  }
}

HostRank::Gather HostRank::begin_gather(const TensorView& x, const TensorView& out) {
  HEADRACE_CHECK(group_ != nullptr);
  const All all = group_->exchange(rank_, {.x = x, .out = out});
  int64_t first = 0, cols = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    HEADRACE_CHECK(all[i].x.rows() == x.rows(), all[i].x.rows(), " rows, here ", x.rows());
    if (i == static_cast<size_t>(rank_)) first = cols;
    cols += all[i].x.cols();
  }
  HEADRACE_CHECK(out.cols() == cols, out.cols(), " columns of ", cols);
  return {all, x, first};
}

void HostRank::Gather::run(int64_t begin, int64_t end) const {
  for (const auto& other : all) {
    if (other.out.data == nullptr) continue;
    for (int64_t i = begin; i < end; ++i) {
      std::copy_n(x.row<float>(i), x.cols(), other.out.row<float>(i) + first);
    }
  }
}

}  // namespace headrace
