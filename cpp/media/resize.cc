#include <algorithm>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "headrace/media.h"
#include "media/resize_passes.h"
#include "media/resize_weights.h"

namespace headrace {

namespace {

void check_size(const char* name, ImageSize size) {
  if (size.height < 1 || size.width < 1 || size.height > kMaxImageSide ||
      size.width > kMaxImageSide || size.height * size.width > kMaxPixels) {
    throw_error(ErrorCode::kInvalidArgument, name, " is ", size.height, " x ", size.width,
                " pixels: each side must lie in [1, ", kMaxImageSide, "], and all pixels in [1, ",
                kMaxPixels, "]");
  }
}

using Bytes = std::unique_ptr<uint8_t[]>;

/// Not set to zero: that would cost as much as a pass. Aligned for any number.
Bytes new_bytes(int64_t count) {
  return std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(count));
}

AxisTaps taps_of(const AxisWeights& axis, int64_t in, int64_t out) {
  return {in, out, axis.stride, axis.first.data(), axis.count.data(), axis.weight.data()};
}

/// The part of an axis that makes the outputs [first, last).
AxisTaps part_of(const AxisTaps& axis, int64_t first, int64_t last) {
  return {axis.in,
          last - first,
          axis.stride,
          axis.first + first,
          axis.count + first,
          axis.weight + first * axis.stride};
}

/// What lies between the passes is made and used up in bands that stay in the cache.
constexpr int64_t kBandBytes = 192 << 10;

/// One past the last input that the outputs [first, last) read.
int64_t end_of(const AxisTaps& axis, int64_t last) {
  return int64_t{axis.first[last - 1]} + axis.count[last - 1];
}

/// Both passes, band by band: the rows that two bands share are kept.
void resize_both(const ResizePasses& passes, const uint8_t* from, const AxisTaps& x,
                 const AxisTaps& y, uint8_t* to, uint8_t* scratch) {
  const int64_t row_bytes = 3 * x.out;
  const int64_t rows_in = std::max<int64_t>(kBandBytes / row_bytes, 1);
  const int64_t rows_out = std::clamp<int64_t>(rows_in * y.out / y.in, 1, y.out);
  int64_t most = 0;
  for (int64_t o = 0; o < y.out; o += rows_out) {
    most = std::max(most, end_of(y, std::min(o + rows_out, y.out)) - y.first[o]);
  }
  const Bytes band = new_bytes(most * row_bytes);
  int64_t origin = 0, made = 0;  // the band holds the rows [origin, made)
  for (int64_t o = 0; o < y.out; o += rows_out) {
    const AxisTaps part = part_of(y, o, std::min(o + rows_out, y.out));
    const int64_t first = part.first[0], end = end_of(part, part.out);
    const int64_t start = std::max(first, made);
    if (made > first) {
      std::memmove(band.get(), band.get() + (first - origin) * row_bytes,
                   static_cast<size_t>((made - first) * row_bytes));
    }
    passes.horizontal(from + start * 3 * x.in, end - start, x,
                      band.get() + (start - first) * row_bytes, scratch);
    origin = first;
    made = end;
    passes.vertical(band.get(), origin, row_bytes, part, to + o * row_bytes, scratch);
  }
}

}  // namespace

}  // namespace headrace

void headrace::resize_rgb(const uint8_t* from, ImageSize from_size, uint8_t* to, ImageSize to_size,
                          ResizeFilter filter) {
  check_size("the image to resize", from_size);
  check_size("the size to resize to", to_size);
  check_size("what lies between the two passes", {from_size.height, to_size.width});
  const ResizePasses* fast = avx2_passes();
  const ResizePasses& passes = fast != nullptr ? *fast : plain_passes();
  const AxisWeights x = axis_weights(from_size.width, to_size.width, filter);
  const AxisWeights y = axis_weights(from_size.height, to_size.height, filter);
  const AxisTaps across = taps_of(x, from_size.width, to_size.width);
  const AxisTaps down = taps_of(y, from_size.height, to_size.height);
  const Bytes scratch = new_bytes(std::max(across.out * across.stride, down.out * down.stride) *
                                      int64_t{sizeof(int32_t)} +
                                  kRowsAtOnce * (3 * across.in + kRowPadding));
  if (across.in != across.out && down.in != down.out) {
    resize_both(passes, from, across, down, to, scratch.get());
  } else if (across.in != across.out) {
    passes.horizontal(from, down.in, across, to, scratch.get());
  } else if (down.in != down.out) {
    passes.vertical(from, 0, 3 * across.out, down, to, scratch.get());
  } else {
    std::memcpy(to, from, static_cast<size_t>(down.out * 3 * across.out));
  }
}
