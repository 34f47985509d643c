#include <cstring>
#include <utility>
#include <vector>

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

AxisTaps taps_of(const AxisWeights& axis, int64_t in, int64_t out) {
  return {in, out, axis.stride, axis.first.data(), axis.count.data(), axis.weight.data()};
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
  const bool across = from_size.width != to_size.width;
  const bool down = from_size.height != to_size.height;
  const int64_t row_bytes = 3 * to_size.width;
  std::vector<uint8_t> between;
  if (across) {
    std::vector<uint8_t> scratch(
        static_cast<size_t>(kRowsAtOnce * (3 * from_size.width + kRowPadding)));
    if (down) between.resize(static_cast<size_t>(from_size.height * row_bytes));
    uint8_t* target = down ? between.data() : to;
    passes.horizontal(from, from_size.height, taps_of(x, from_size.width, to_size.width), target,
                      scratch.data());
    from = target;
  }
  if (down) {
    passes.vertical(from, row_bytes, taps_of(y, from_size.height, to_size.height), to);
  } else if (!across) {
    std::memcpy(to, from, static_cast<size_t>(to_size.height * row_bytes));
  }
}
