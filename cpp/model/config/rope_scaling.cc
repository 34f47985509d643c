#include "model/config/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/check.h"

namespace headrace {

namespace {

/// theta^(2i/d) for each pair i.
std::vector<float> pair_wavelengths(double theta, int32_t dim) {
  std::vector<float> out;
  for (int32_t i = 0; i < dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(dim);
    out.push_back(static_cast<float>(
        std::pow(static_cast<double>(static_cast<float>(theta)), static_cast<double>(exponent))));
  }
  return out;
}

std::vector<float> reciprocals(std::vector<float> values) {
  for (float& value : values) value = 1.0f / value;
  return values;
}

float llama3_frequency(const RopeScaling& s, float frequency) {
  const auto length = static_cast<double>(s.original_length);
  const auto factor = static_cast<float>(s.factor);
  const auto low = static_cast<float>(s.low_freq_factor);
  const float wavelength = (1.0f / frequency) * static_cast<float>(2 * std::numbers::pi);
  if (wavelength > static_cast<float>(length / s.low_freq_factor)) return frequency / factor;
  if (wavelength < static_cast<float>(length / s.high_freq_factor)) return frequency;
  const float turns = (1.0f / wavelength) * static_cast<float>(length);
  const float smooth = (turns - low) / static_cast<float>(s.high_freq_factor - s.low_freq_factor);
  return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

/// The dimension whose pair turns `turns` times over the original length.
double yarn_dimension(const RopeScaling& s, int32_t dim, double turns) {
  const auto length = static_cast<double>(s.original_length);
  return dim * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(s.theta));
}

std::vector<float> yarn_frequencies(const RopeScaling& s, int32_t dim) {
  double low = yarn_dimension(s, dim, s.beta_fast);
  double high = yarn_dimension(s, dim, s.beta_slow);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;

  std::vector<float> out = pair_wavelengths(s.theta, dim);
  for (size_t i = 0; i < out.size(); ++i) {
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f,
        1.0f);
    const float kept = 1.0f - ramp;
    const float extrapolated = 1.0f / out[i];
    const float interpolated = 1.0f / (static_cast<float>(s.factor) * out[i]);
    out[i] = interpolated * (1.0f - kept) + extrapolated * kept;
  }
  return out;
}

double yarn_attention_factor(const RopeScaling& s) {
  const auto scale = [&s](double multiplier) {
    return s.factor <= 1.0 ? 1.0 : 0.1 * multiplier * std::log(s.factor) + 1.0;
  };
  if (s.attention_factor) return *s.attention_factor;
  if (s.mscale != 0.0 && s.mscale_all_dim != 0.0) return scale(s.mscale) / scale(s.mscale_all_dim);
  return scale(1.0);
}

/// Where the i-th pair of height (axis 1) or width (2) stands.
size_t pair_of(const MropeDefaults& mrope, size_t pairs, size_t axis, size_t i) {
  const auto height = static_cast<size_t>(mrope.sections[1]);
  const auto width = static_cast<size_t>(mrope.sections[2]);
  switch (mrope.order) {
    case MropeOrder::kBlocks:
      return pairs - width - (axis == 1 ? height : 0) + i;
    case MropeOrder::kInTurn:
      return axis + 3 * i;
    case MropeOrder::kTimeLast:
      return axis - 1 + 2 * i;
  }
  HEADRACE_CHECK(false, static_cast<int>(mrope.order));
  return 0;
}

std::vector<uint8_t> pair_axes(const MropeDefaults& mrope, size_t pairs) {
  std::vector<uint8_t> out(pairs, 0);
  for (const size_t axis : {1, 2}) {
    for (size_t i = 0; i < static_cast<size_t>(mrope.sections[axis]); ++i) {
      out[pair_of(mrope, pairs, axis, i)] = static_cast<uint8_t>(axis);
    }
  }
  return out;
}

/// LongRoPE: each pair's wavelength is multiplied by a factor of its own.
std::vector<float> factored_frequencies(const RopeScaling& s, const std::vector<float>& factors) {
  std::vector<float> out = pair_wavelengths(s.theta, s.rotary_dim);
  HEADRACE_CHECK(factors.size() == out.size(), factors.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = 1.0f / (factors[i] * out[i]);
  return out;
}

double longrope_attention_factor(const RopeScaling& s) {
  if (s.attention_factor) return *s.attention_factor;
  if (s.factor <= 1.0) return 1.0;
  return std::sqrt(1.0 + std::log(s.factor) / std::log(static_cast<double>(s.original_length)));
}

}  // namespace

double RopeScaling::score_factor() const {
  if (kind != RopeKind::kYarn || mscale_all_dim == 0.0 || factor <= 1.0) return 1.0;
  const double m = 0.1 * mscale_all_dim * std::log(factor) + 1.0;
  return m * m;
}

RopeSpec make_rope(const RopeScaling& scaling, RopeStyle style) {
  const int32_t rotary_dim = scaling.rotary_dim;
  HEADRACE_CHECK(rotary_dim > 2 && rotary_dim % 2 == 0, rotary_dim);
  HEADRACE_CHECK(scaling.theta > 1.0 && scaling.factor > 0.0, scaling.theta, " ", scaling.factor);
  RopeSpec spec;
  spec.style = style;
  spec.rotary_dim = rotary_dim;
  if (!scaling.mrope.sections.empty()) {
    spec.axes = pair_axes(scaling.mrope, static_cast<size_t>(rotary_dim / 2));
  }
  if (scaling.kind == RopeKind::kYarn) {
    spec.inv_freq = yarn_frequencies(scaling, rotary_dim);
    spec.attention_factor = static_cast<float>(yarn_attention_factor(scaling));
    return spec;
  }
  if (scaling.kind == RopeKind::kLongRope) {
    spec.inv_freq = factored_frequencies(scaling, scaling.short_factors);
    spec.long_inv_freq = factored_frequencies(scaling, scaling.long_factors);
    spec.dynamic_original_max = static_cast<int32_t>(scaling.original_length);
    spec.attention_factor = static_cast<float>(longrope_attention_factor(scaling));
    return spec;
  }
  if (scaling.kind == RopeKind::kNtkAlpha) {
    const double dim = rotary_dim;
    const double theta = scaling.theta * std::pow(scaling.factor, dim / (dim - 2.0));
    spec.inv_freq = reciprocals(pair_wavelengths(theta, rotary_dim));
    return spec;
  }
  spec.inv_freq = reciprocals(pair_wavelengths(scaling.theta, rotary_dim));
  if (scaling.kind == RopeKind::kProportional) {
    const auto turning = static_cast<size_t>(scaling.turning_pairs);
    HEADRACE_CHECK(turning <= spec.inv_freq.size(), turning);
    for (float& frequency : spec.inv_freq) frequency /= static_cast<float>(scaling.factor);
    std::fill(spec.inv_freq.begin() + scaling.turning_pairs, spec.inv_freq.end(), 0.0f);
  } else if (scaling.kind == RopeKind::kLinear) {
    for (float& frequency : spec.inv_freq) frequency /= static_cast<float>(scaling.factor);
  } else if (scaling.kind == RopeKind::kLlama3) {
    for (float& frequency : spec.inv_freq) frequency = llama3_frequency(scaling, frequency);
  } else if (scaling.kind == RopeKind::kDynamic) {
    spec.dynamic_original_max = static_cast<int32_t>(scaling.original_length);
    spec.dynamic_base = scaling.theta;
    spec.dynamic_factor = scaling.factor;
  }
  return spec;
}

}  // namespace headrace
