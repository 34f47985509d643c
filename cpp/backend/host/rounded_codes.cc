#include "backend/host/rounded_codes.h"

#include <algorithm>
#include <cmath>

#include "backend/contract/quant_format.h"
#include "base/check.h"
#include "tensor/float8.h"

namespace headrace {

namespace {

constexpr float kLeastTop = 0x1p-100f;

}  // namespace

float largest_size(std::span<const float> numbers) {
  float top = 0.0f;
  for (const float x : numbers) top = std::max(top, std::abs(x));
  return top;
}

void round_like_activations(const QuantFormat& format, std::span<const float> numbers, float top,
                            QuantizedGroup* out) {
  HEADRACE_CHECK(rounds_rows(format) && numbers.size() <= size_t{kMaxQuantGroup}, numbers.size());
  const float most = most_of(format);
  const bool none = top < kLeastTop;
  out->wide_scale = none ? 0.0f : top / most;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const float wanted = none ? 0.0f : numbers[i] * (most / top);
    out->codes[i] = has_float8(format)
                        ? f32_to_e4m3(wanted)
                        : static_cast<uint8_t>(128 + static_cast<int>(std::nearbyint(wanted)));
  }
}

float code_number(const QuantFormat& format, uint8_t code, float scale) {
  return scale * (has_float8(format) ? e4m3_to_f32(code) : static_cast<float>(code) - 128.0f);
}

}  // namespace headrace
