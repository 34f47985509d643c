#include "media/resize_weights.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "base/checked_math.h"

namespace headrace {

namespace {

// The order of the operations decides the last bit of a weight: it is Pillow's.

double bilinear(double x) {
  x = std::fabs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

double bicubic(double x) {
  constexpr double kA = -0.5;
  x = std::fabs(x);
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0.0;
}

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double lanczos(double x) { return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

struct Filter {
  double (*value)(double);
  double support;  // it is zero beyond
};

Filter filter_of(ResizeFilter filter) {
  switch (filter) {
    case ResizeFilter::kLanczos:
      return {lanczos, 3.0};
    case ResizeFilter::kBilinear:
      return {bilinear, 1.0};
    case ResizeFilter::kBicubic:
      return {bicubic, 2.0};
  }
  throw_error(ErrorCode::kInvalidArgument, "resize filter ", static_cast<int>(filter),
              " is unknown: use 1 (lanczos), 2 (bilinear) or 3 (bicubic)");
}

int32_t fixed_point(double weight) {
  const double scaled = weight * static_cast<double>(1 << kWeightBits);
  return static_cast<int32_t>(weight < 0 ? scaled - 0.5 : scaled + 0.5);
}

}  // namespace

AxisWeights axis_weights(int64_t in, int64_t out, ResizeFilter filter) {
  const Filter kind = filter_of(filter);
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double stretch = std::max(scale, 1.0);
  const double support = kind.support * stretch, shrink = 1.0 / stretch;
  AxisWeights axis;
  axis.stride = round_up<int64_t>(static_cast<int64_t>(std::ceil(support)) * 2 + 1, 4);
  axis.stride = std::min(axis.stride, round_up<int64_t>(in, 4));
  axis.first.resize(static_cast<size_t>(out));
  axis.count.resize(static_cast<size_t>(out));
  axis.weight.assign(static_cast<size_t>(out * axis.stride), 0);
  std::vector<double> values(static_cast<size_t>(axis.stride));
  for (int64_t o = 0; o < out; ++o) {
    const double center = (static_cast<double>(o) + 0.5) * scale;
    const auto low = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const auto high = std::min<int64_t>(static_cast<int64_t>(center + support + 0.5), in);
    double sum = 0;
    for (int64_t i = low; i < high; ++i) {
      const double value = kind.value((static_cast<double>(i) - center + 0.5) * shrink);
      values[static_cast<size_t>(i - low)] = value;
      sum += value;
    }
    axis.first[static_cast<size_t>(o)] = static_cast<int32_t>(low);
    axis.count[static_cast<size_t>(o)] = static_cast<int32_t>(high - low);
    for (int64_t i = 0; i < high - low; ++i) {
      const double value = values[static_cast<size_t>(i)];
      axis.weight[static_cast<size_t>(o * axis.stride + i)] =
          fixed_point(sum != 0.0 ? value / sum : value);
    }
  }
  return axis;
}

}  // namespace headrace
