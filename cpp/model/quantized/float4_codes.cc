#include "model/quantized/float4_codes.h"

namespace headrace {

void Float4Codes::read(int64_t first, int64_t count, int64_t group, QuantizedGroup* out) const {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t feature = first_ + (first + i) * step_;
    const uint8_t* pairs = whole_->pairs(feature, group);
    out[i].scale = whole_->scale(feature, group);
    out[i].zero = 0;
    for (int64_t j = 0; j < kMxBlock / 2; ++j) {
      out[i].codes[2 * j] = pairs[j] & 15;
      out[i].codes[2 * j + 1] = pairs[j] >> 4;
    }
  }
}

}  // namespace headrace
