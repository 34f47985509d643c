// The resize against Pillow's numbers, against plain loops, and against sizes that nobody means.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "headrace/media.h"
#include "headrace/status.h"
#include "media/resize_passes.h"
#include "media/resize_weights.h"

namespace headrace {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes resized(const Bytes& from, ImageSize from_size, ImageSize to_size, ResizeFilter filter) {
  Bytes to(static_cast<size_t>(3 * to_size.height * to_size.width));
  resize_rgb(from.data(), from_size, to.data(), to_size, filter);
  return to;
}

Bytes grey(const std::vector<int>& values) {
  Bytes pixels;
  for (int value : values) pixels.insert(pixels.end(), 3, static_cast<uint8_t>(value));
  return pixels;
}

Bytes noise(ImageSize size, unsigned seed) {
  std::mt19937 random(seed);
  Bytes pixels(static_cast<size_t>(3 * size.height * size.width));
  for (uint8_t& byte : pixels) byte = static_cast<uint8_t>(random());
  return pixels;
}

TEST(Resize, GivesPillowsNumbers) {
  const Bytes row = grey({0, 255, 10, 200, 30, 90, 60, 250});
  const std::vector<std::vector<int>> expected = {
      {114, 93, 125},
      {112, 118, 69, 151},
      {105, 116, 109, 59, 176},
      {0, 166, 199, 10, 173, 123, 30, 89, 56, 137, 255},
      {0, 134, 238, 31, 100, 190, 49, 51, 88, 53, 159, 255}};
  for (const auto& values : expected) {
    const auto length = static_cast<int64_t>(values.size());
    EXPECT_EQ(resized(row, {1, 8}, {1, length}, ResizeFilter::kBicubic), grey(values));
    EXPECT_EQ(resized(row, {8, 1}, {length, 1}, ResizeFilter::kBicubic), grey(values));
  }
}

TEST(Resize, GoesAcrossBeforeItGoesDown) {
  std::vector<int> values;
  for (int y = 0; y < 6; ++y) {
    for (int x = 0; x < 5; ++x) {
      values.push_back(40 * y + 7 * x);
    }
  }
  values[2 * 5 + 3] = 255;
  values[4 * 5 + 1] = 0;
  const Bytes image = grey(values);
  EXPECT_EQ(resized(image, {6, 5}, {3, 4}, ResizeFilter::kBicubic),
            grey({23, 32, 52, 53, 97, 94, 161, 143, 161, 138, 197, 204}));
  EXPECT_EQ(resized(image, {6, 5}, {3, 8}, ResizeFilter::kBicubic),
            grey({21,  25,  31,  33,  43,  61,  56,  49,  100, 94,  89,  101,
                  137, 185, 155, 124, 183, 146, 109, 167, 199, 194, 202, 208}));
  EXPECT_EQ(resized(image, {6, 5}, {8, 3}, ResizeFilter::kBicubic),
            grey({0,   12,  24,  25, 34,  43,  55,  84,  107, 84,  136, 177,
                  120, 134, 147, 93, 128, 172, 128, 163, 207, 208, 218, 228}));
}

TEST(Resize, SameSizeIsACopy) {
  const Bytes image = noise({7, 13}, 1);
  EXPECT_EQ(resized(image, {7, 13}, {7, 13}, ResizeFilter::kLanczos), image);
}

TEST(Resize, AConstantImageStaysConstant) {
  for (int level : {0, 1, 127, 255}) {
    const Bytes image(3 * 31 * 17, static_cast<uint8_t>(level));
    EXPECT_EQ(resized(image, {31, 17}, {12, 40}, ResizeFilter::kLanczos),
              Bytes(3 * 12 * 40, static_cast<uint8_t>(level)));
  }
}

/// The same pass, with 64 bits and one value at a time.
Bytes reference_pass(const Bytes& from, int64_t rows, int64_t in, int64_t inner, int64_t out,
                     ResizeFilter filter) {
  const AxisWeights axis = axis_weights(in, out, filter);
  Bytes to(static_cast<size_t>(rows * out * inner));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      const auto at = static_cast<size_t>(o);
      for (int64_t c = 0; c < inner; ++c) {
        int64_t sum = int64_t{1} << (kWeightBits - 1);
        for (int64_t i = 0; i < axis.count[at]; ++i) {
          sum += int64_t{axis.weight[static_cast<size_t>(o * axis.stride + i)]} *
                 from[static_cast<size_t>((r * in + axis.first[at] + i) * inner + c)];
        }
        const int64_t value = sum >> kWeightBits;
        to[static_cast<size_t>((r * out + o) * inner + c)] =
            static_cast<uint8_t>(value < 0     ? 0
                                 : value > 255 ? 255
                                               : value);
      }
    }
  }
  return to;
}

AxisTaps taps(const AxisWeights& axis, int64_t in, int64_t out) {
  return {in, out, axis.stride, axis.first.data(), axis.count.data(), axis.weight.data()};
}

TEST(Resize, EveryInstructionSetGivesTheReferencesBits) {
  std::vector<const ResizePasses*> sets = {&plain_passes()};
  if (avx2_passes() != nullptr) sets.push_back(avx2_passes());
  const int64_t shapes[][4] = {{1, 1, 1, 1},  {1, 1, 5, 3},     {3, 2, 9, 31},  {40, 40, 20, 36},
                               {5, 70, 9, 8}, {64, 33, 65, 34}, {9, 200, 2, 3}, {17, 11, 80, 96}};
  unsigned seed = 0;
  for (const ResizePasses* passes : sets) {
    for (const auto& [h, w, H, W] : shapes) {
      for (auto filter :
           {ResizeFilter::kLanczos, ResizeFilter::kBilinear, ResizeFilter::kBicubic}) {
        SCOPED_TRACE(std::to_string(h) + "x" + std::to_string(w) + " to " + std::to_string(H) +
                     "x" + std::to_string(W) + (passes == sets[0] ? " plain" : " avx2"));
        const Bytes image = noise({h, w}, ++seed);
        const AxisWeights x = axis_weights(w, W, filter), y = axis_weights(h, H, filter);
        Bytes across(static_cast<size_t>(3 * h * W)), down(static_cast<size_t>(3 * H * W));
        Bytes scratch(static_cast<size_t>(4 * std::max(W * x.stride, H * y.stride) +
                                          kRowsAtOnce * (3 * w + kRowPadding)));
        passes->horizontal(image.data(), h, taps(x, w, W), across.data(), scratch.data());
        EXPECT_EQ(across, reference_pass(image, h, w, 3, W, filter));
        passes->vertical(across.data(), 0, 3 * W, taps(y, h, H), down.data(), scratch.data());
        EXPECT_EQ(down, reference_pass(across, 1, h, 3 * W, H, filter));
      }
    }
  }
}

TEST(Resize, BandsChangeNothing) {
  // Wide enough for many bands; shrinking, growing and nearly the same height.
  const int64_t shapes[][4] = {{90, 3000, 97, 3100}, {301, 2100, 17, 2000}, {40, 2500, 131, 2600}};
  unsigned seed = 100;
  for (const auto& [h, w, H, W] : shapes) {
    const Bytes image = noise({h, w}, ++seed);
    const Bytes across = reference_pass(image, h, w, 3, W, ResizeFilter::kLanczos);
    EXPECT_EQ(resized(image, {h, w}, {H, W}, ResizeFilter::kLanczos),
              reference_pass(across, 1, h, 3 * W, H, ResizeFilter::kLanczos));
  }
}

TEST(Resize, SumsFit32Bits) {
  int64_t largest = 0;
  for (auto filter : {ResizeFilter::kLanczos, ResizeFilter::kBilinear, ResizeFilter::kBicubic}) {
    for (int64_t in = 1; in <= 40; ++in) {
      for (int64_t out = 1; out <= 40; ++out) {
        const AxisWeights axis = axis_weights(in, out, filter);
        for (int64_t o = 0; o < out; ++o) {
          int64_t sum = 0, magnitude = 0;
          for (int64_t i = 0; i < axis.stride; ++i) {
            const int32_t weight = axis.weight[static_cast<size_t>(o * axis.stride + i)];
            sum += weight;
            magnitude += std::abs(weight);
          }
          EXPECT_NEAR(static_cast<double>(sum), 1 << kWeightBits, static_cast<double>(axis.stride));
          largest = std::max(largest, magnitude);
        }
      }
    }
  }
  EXPECT_LT(largest * 255 + (1 << (kWeightBits - 1)), int64_t{1} << 31);
}

TEST(Resize, RefusesSizesBeforeItTouchesAnything) {
  uint8_t byte = 7;
  const int64_t huge = INT64_MAX;
  for (const ImageSize bad :
       {ImageSize{0, 5}, ImageSize{5, 0}, ImageSize{-1, 5}, ImageSize{huge, huge},
        ImageSize{kMaxImageSide + 1, 1}, ImageSize{kMaxImageSide, kMaxImageSide}}) {
    EXPECT_THROW(resize_rgb(&byte, bad, &byte, {1, 1}, ResizeFilter::kBicubic), Error);
    EXPECT_THROW(resize_rgb(&byte, {1, 1}, &byte, bad, ResizeFilter::kBicubic), Error);
  }
  // Each is small enough, but not what lies between the passes.
  EXPECT_THROW(
      resize_rgb(&byte, {kMaxImageSide, 1}, &byte, {1, kMaxImageSide}, ResizeFilter::kBicubic),
      Error);
  uint8_t pixel[3] = {1, 2, 3};
  EXPECT_THROW(resize_rgb(pixel, {1, 1}, pixel, {1, 1}, static_cast<ResizeFilter>(0)), Error);
  EXPECT_EQ(byte, 7);
}

}  // namespace
}  // namespace headrace
