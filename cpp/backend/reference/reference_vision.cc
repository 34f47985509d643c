#include "backend/reference/reference_vision.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/reference/reference_rows.h"

namespace headrace {

namespace {

/// One head of one query over the rows [first, end).
void attend(const SegmentAttention& args, const float* query, int64_t column, int32_t first,
            int32_t end, float* out) {
  std::vector<double> scores;
  for (int32_t row = first; row < end; ++row) {
    const float* key = args.k.row<float>(row) + column;
    double dot = 0.0;
    for (int32_t i = 0; i < args.head_dim; ++i) dot += static_cast<double>(query[i]) * key[i];
    scores.push_back(dot * static_cast<double>(args.scale));
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  double total = 0.0;
  std::vector<double> sums(static_cast<size_t>(args.head_dim));
  for (int32_t row = first; row < end; ++row) {
    const double weight = std::exp(scores[static_cast<size_t>(row - first)] - largest);
    const float* value = args.v.row<float>(row) + column;
    total += weight;
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += weight * static_cast<double>(value[i]);
  }
  for (size_t i = 0; i < sums.size(); ++i) out[i] = static_cast<float>(sums[i] / total);
}

}  // namespace

void reference_activate(Activation kind, const TensorView& x) {
  for (int64_t i = 0; i < x.rows(); ++i) {
    float* row = x.row<float>(i);
    for (int64_t j = 0; j < x.cols(); ++j) {
      row[j] = static_cast<float>(reference_activation(kind, static_cast<double>(row[j])));
    }
  }
}

void reference_rotate(const TensorView& x, const TensorView& table, int32_t heads,
                      int32_t head_dim) {
  const int32_t pairs = head_dim / 2;
  for (int64_t row = 0; row < x.rows(); ++row) {
    const float* angles = table.row<float>(row);
    for (int32_t head = 0; head < heads; ++head) {
      float* at = x.row<float>(row) + int64_t{head} * head_dim;
      for (int32_t i = 0; i < pairs; ++i) {
        const double a = at[i], b = at[pairs + i], c = angles[i], s = angles[pairs + i];
        at[i] = static_cast<float>(a * c - b * s);
        at[pairs + i] = static_cast<float>(b * c + a * s);
      }
    }
  }
}

void reference_segment_attention(const SegmentAttention& args) {
  for (int32_t i = 0; i < args.q.rows(); ++i) {
    const int32_t row = args.first + i;
    const auto end = std::upper_bound(args.segment_ends.begin(), args.segment_ends.end(), row);
    const int32_t start = end == args.segment_ends.begin() ? 0 : *(end - 1);
    for (int32_t head = 0; head < args.heads; ++head) {
      const int64_t column = int64_t{head} * args.head_dim;
      attend(args, args.q.row<float>(i) + column, column, start, *end,
             args.out.row<float>(i) + column);
    }
  }
}

}  // namespace headrace
