#include "model/quantized/float8_codes.h"

#include <algorithm>
#include <cstring>

#include "backend/contract/backend.h"
#include "base/check.h"

namespace headrace {

void Float8Codes::read(int64_t first, int64_t count, int64_t group, QuantizedGroup* out) const {
  constexpr uint8_t kNan = 0x7f;
  const int64_t input = group * format_.group_size;
  const int64_t inputs = std::min<int64_t>(format_.group_size, k_ - input);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t feature = first_ + first + i;
    QuantizedGroup& to = out[i];
    to = {};
    to.wide_scale = whole_->scale(feature, input);
    std::memcpy(to.codes, whole_->codes(feature) + input, static_cast<size_t>(inputs));
    const auto is_nan = [](uint8_t code) { return (code & kNan) == kNan; };
    const auto* bad = std::find_if(to.codes, to.codes + inputs, is_nan);
    if (bad == to.codes + inputs) continue;
    throw TensorError(ErrorCode::kCorruptFile,
                      str_cat("tensor ", tensors().front(), " holds NaN for feature ", feature,
                              ", input ", input + (bad - to.codes), ": get the file again."));
  }
}

}  // namespace headrace
