#include "backend/cpu/experts/expert_pairs.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/checked_math.h"

namespace headrace {

namespace {

/// Where the arrays lie.
struct Places {
  size_t rows, weights, ends, groups, bytes;
};

Places places_of(int64_t rows, int64_t top_k, int64_t experts) {
  const auto array = [](int64_t count, size_t size) {
    return round_up(static_cast<size_t>(count) * size, size_t{64});
  };
  const int64_t pairs = rows * top_k;
  HEADRACE_CHECK(pairs <= std::numeric_limits<int32_t>::max(), rows, " x ", top_k);
  const int64_t groups = std::min(pairs, experts) + pairs / ExpertPairs::kMostGroupRows;
  Places out{};
  out.weights = array(pairs, sizeof(int32_t));
  out.ends = out.weights + array(pairs, sizeof(float));
  out.groups = out.ends + array(experts, sizeof(int32_t));
  out.bytes = out.groups + array(groups, sizeof(ExpertGroup));
  return out;
}

}  // namespace

size_t ExpertPairs::bytes(int64_t rows, int64_t top_k, int64_t experts) {
  return places_of(rows, top_k, experts).bytes;
}

ExpertPairs::ExpertPairs(std::byte* memory, const Experts& args) {
  const int64_t experts = args.gate_up.experts();
  const Places places = places_of(args.ids.rows(), args.ids.cols(), experts);
  rows_ = reinterpret_cast<int32_t*>(memory + places.rows);
  weights_ = reinterpret_cast<float*>(memory + places.weights);
  ends_ = reinterpret_cast<int32_t*>(memory + places.ends);
  group_memory_ = reinterpret_cast<ExpertGroup*>(memory + places.groups);
  count(args, experts);
  sort(args, experts);
  group(experts);
}

/// Each expert's first pair.
void ExpertPairs::count(const Experts& args, int64_t experts) {
  std::fill_n(ends_, experts, 0);
  for (int64_t row = 0; row < args.ids.rows(); ++row) {
    for (int64_t i = 0; i < args.ids.cols(); ++i) {
      const int32_t id = args.own(args.ids.row<int32_t>(row)[i], experts);
      if (args.first >= 0 && id < 0) continue;
      HEADRACE_CHECK(id >= 0 && id < experts, "expert ", id, " of ", experts);
      ++ends_[id];
    }
  }
  int32_t first = 0;
  for (int64_t expert = 0; expert < experts; ++expert) {
    first += ends_[expert];
    ends_[expert] = first - ends_[expert];
  }
}

void ExpertPairs::sort(const Experts& args, int64_t experts) {
  for (int64_t row = 0; row < args.ids.rows(); ++row) {
    for (int64_t i = 0; i < args.ids.cols(); ++i) {
      const int32_t id = args.own(args.ids.row<int32_t>(row)[i], experts);
      if (id < 0) continue;
      const int32_t pair = ends_[id]++;
      rows_[pair] = static_cast<int32_t>(row);
      weights_[pair] = args.weights.row<float>(row)[i];
    }
  }
}

void ExpertPairs::group(int64_t experts) {
  size_t count = 0;
  int64_t first = 0;
  for (int64_t expert = 0; expert < experts; ++expert) {
    const int64_t pairs = ends_[expert] - first;
    const int64_t parts = ceil_div(pairs, kMostGroupRows);
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = first + pairs * part / parts, end = first + pairs * (part + 1) / parts;
      group_memory_[count++] = {static_cast<int32_t>(expert), static_cast<int32_t>(begin),
                                static_cast<int32_t>(end - begin)};
    }
    first = ends_[expert];
  }
  groups_ = {group_memory_, count};
}

}  // namespace headrace
