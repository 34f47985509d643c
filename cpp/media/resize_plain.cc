#include "media/resize_passes.h"
#include "media/resize_weights.h"

namespace headrace {

namespace {

constexpr int32_t kHalf = 1 << (kWeightBits - 1);

// The weights of a position sum to about 1 and their magnitudes to less than 2: no sum of bytes
// leaves 32 bits.
uint8_t to_byte(int32_t sum) {
  const int32_t value = sum >> kWeightBits;
  return static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

void horizontal(const uint8_t* from, int64_t rows, const AxisTaps& x, uint8_t* to, uint8_t*) {
  for (int64_t row = 0; row < rows; ++row, from += 3 * x.in) {
    for (int64_t o = 0; o < x.out; ++o, to += 3) {
      const uint8_t* pixel = from + 3 * int64_t{x.first[o]};
      const int32_t* weight = x.weight + o * x.stride;
      int32_t red = kHalf, green = kHalf, blue = kHalf;
      for (int32_t i = 0; i < x.count[o]; ++i, pixel += 3) {
        red += weight[i] * pixel[0];
        green += weight[i] * pixel[1];
        blue += weight[i] * pixel[2];
      }
      to[0] = to_byte(red);
      to[1] = to_byte(green);
      to[2] = to_byte(blue);
    }
  }
}

void vertical(const uint8_t* from, int64_t origin, int64_t width, const AxisTaps& y, uint8_t* to,
              uint8_t*) {
  for (int64_t o = 0; o < y.out; ++o, to += width) {
    const uint8_t* top = from + (y.first[o] - origin) * width;
    const int32_t* weight = y.weight + o * y.stride;
    for (int64_t column = 0; column < width; ++column) {
      int32_t sum = kHalf;
      for (int32_t i = 0; i < y.count[o]; ++i) sum += weight[i] * top[i * width + column];
      to[column] = to_byte(sum);
    }
  }
}

}  // namespace

const ResizePasses& plain_passes() {
  static constexpr ResizePasses kPasses{horizontal, vertical};
  return kPasses;
}

}  // namespace headrace
