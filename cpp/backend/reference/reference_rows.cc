#include "backend/reference/reference_rows.h"

#include <cmath>
#include <numbers>

#include "base/check.h"

namespace headrace {

namespace {

/// x = f(x, the number of `other` at its place).
template <class F>
void each(const TensorView& x, const TensorView& other, const F& f) {
  for (int64_t i = 0; i < x.rows(); ++i) {
    float* row = x.row<float>(i);
    const float* from = other.row<float>(i);
    for (int64_t j = 0; j < x.cols(); ++j) {
      row[j] = static_cast<float>(f(static_cast<double>(row[j]), static_cast<double>(from[j])));
    }
  }
}

}  // namespace

void reference_rms_norm_row(const float* x, const TensorView& weight, float eps, int64_t n,
                            float* out) {
  double squares = 0.0;
  for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  const double mean = squares / static_cast<double>(n);
  const double factor = 1.0 / std::sqrt(mean + static_cast<double>(eps));
  for (int64_t i = 0; i < n; ++i) {
    const double scale = weight.data == nullptr ? 1.0 : static_cast<double>(weight.as<float>()[i]);
    out[i] = static_cast<float>(x[i] * factor * scale);
  }
}

void reference_layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias,
                          float eps, const TensorView& out) {
  const auto width = static_cast<double>(x.cols());
  for (int64_t i = 0; i < x.rows(); ++i) {
    const float* from = x.row<float>(i);
    double sum = 0.0, squares = 0.0;
    for (int64_t j = 0; j < x.cols(); ++j) sum += static_cast<double>(from[j]);
    const double mean = sum / width;
    for (int64_t j = 0; j < x.cols(); ++j) squares += (from[j] - mean) * (from[j] - mean);
    const double factor = 1.0 / std::sqrt(squares / width + static_cast<double>(eps));
    for (int64_t j = 0; j < x.cols(); ++j) {
      const double scaled = (from[j] - mean) * factor * static_cast<double>(weight.as<float>()[j]);
      const double shift = bias.data == nullptr ? 0.0 : static_cast<double>(bias.as<float>()[j]);
      out.row<float>(i)[j] = static_cast<float>(scaled + shift);
    }
  }
}

double reference_activation(Activation kind, double x) {
  switch (kind) {
    case Activation::kSilu:
      return x / (1.0 + std::exp(-x));
    case Activation::kGeluErf:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::kGeluTanh: {
      const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return x / (1.0 + std::exp(-2.0 * inner));  // (1 + tanh(y)) / 2 = sigmoid(2 y)
    }
    case Activation::kQuickGelu:
      return x / (1.0 + std::exp(-1.702 * x));
    case Activation::kRelu2:
      return x < 0.0 ? 0.0 : x * x;  // NaN stays NaN
    case Activation::kTanh:
      return std::tanh(x);
  }
  HEADRACE_CHECK(false, static_cast<int>(kind));
  return x;
}

float reference_gate(const GateSpec& spec, float gate, float up) {
  double g = gate, u = up;
  if (spec.limit == 0.0f) {
    g *= static_cast<double>(spec.factor);
    return static_cast<float>(reference_activation(spec.activation, g) * u);
  }
  const double limit = spec.limit;
  if (g > limit) g = limit;
  if (std::abs(u) > limit) u = std::copysign(limit, u);
  const double opened = g / (1.0 + std::exp(-static_cast<double>(spec.alpha) * g));
  return static_cast<float>(opened * (u + 1.0));
}

void reference_scale(const TensorView& x, float factor, const TensorView& out) {
  each(out, x, [factor](double, double value) { return value * static_cast<double>(factor); });
}

void reference_mul_sigmoid(const TensorView& gate, const TensorView& out) {
  each(out, gate, [](double value, double y) { return value / (1.0 + std::exp(-y)); });
}

void reference_cap_logits(const TensorView& logits, float factor, float cap) {
  const auto most = static_cast<double>(cap);
  each(logits, logits, [&](double value, double) {
    const double l = value * static_cast<double>(factor);
    return cap > 0.0f ? most * std::tanh(l / most) : l;
  });
}

}  // namespace headrace
