#include "model/vision/tower_positions.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace headrace {

namespace {

constexpr double kTheta = 10000.0;

/// Between which entries of the table a coordinate lies, and how far from the first.
struct Between {
  int32_t low = 0, high = 0;
  float weight = 0.0f;
};

/// `size`: of the grid along this side.
Between locate(int32_t coordinate, int32_t size, int32_t side) {
  const float at = size == 1 ? 0.0f
                             : static_cast<float>(coordinate) * static_cast<float>(side - 1) /
                                   static_cast<float>(size - 1);
  const int32_t low = std::min(static_cast<int32_t>(at), side - 1);
  return {low, std::min(low + 1, side - 1), at - static_cast<float>(low)};
}

}  // namespace

AxialRope::AxialRope(int32_t head_dim, int32_t side) : quarter_(head_dim / 4) {
  HEADRACE_CHECK(head_dim % 4 == 0 && side > 0, head_dim, " ", side);
  std::vector<float> frequencies;
  const auto half = static_cast<float>(head_dim / 2);
  for (int32_t j = 0; j < quarter_; ++j) {
    const float exponent = static_cast<float>(2 * j) / half;
    frequencies.push_back(1.0f /
                          static_cast<float>(std::pow(kTheta, static_cast<double>(exponent))));
  }
  for (int32_t i = 0; i < side; ++i) {
    for (const float frequency : frequencies) {
      const double angle = static_cast<float>(i) * frequency;
      cosines_.push_back(static_cast<float>(std::cos(angle)));
      sines_.push_back(static_cast<float>(std::sin(angle)));
    }
  }
}

void AxialRope::fill(std::pair<int32_t, int32_t> place, float* out) const {
  for (const std::vector<float>* values : {&cosines_, &sines_}) {
    for (const int32_t coordinate : {place.first, place.second}) {
      out = std::copy_n(values->data() + static_cast<size_t>(coordinate) * quarter_, quarter_, out);
    }
  }
}

void PositionTable::fill(const PatchGrid& grid, std::pair<int32_t, int32_t> place,
                         float* out) const {
  const Between y = locate(place.first, grid.h, side_), x = locate(place.second, grid.w, side_);
  const auto row = [this](int32_t row_in, int32_t column) {
    return table_ + (static_cast<size_t>(row_in) * side_ + column) * width_;
  };
  const float* corners[] = {row(y.low, x.low), row(y.low, x.high), row(y.high, x.low),
                            row(y.high, x.high)};
  const float weights[] = {(1.0f - y.weight) * (1.0f - x.weight), (1.0f - y.weight) * x.weight,
                           y.weight * (1.0f - x.weight), y.weight * x.weight};
  for (int32_t i = 0; i < width_; ++i) {
    out[i] = corners[0][i] * weights[0] + corners[1][i] * weights[1] + corners[2][i] * weights[2] +
             corners[3][i] * weights[3];
  }
}

}  // namespace headrace
