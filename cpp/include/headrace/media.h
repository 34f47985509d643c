#pragma once

// Pixels of images and video frames on their way into a vision tower: resizing and patches.
//
//   std::vector<uint8_t> resized(3 * 476 * 644);
//   headrace::resize_rgb(pixels, {480, 640}, resized.data(), {476, 644},
//                        headrace::ResizeFilter::kBicubic);
//   headrace::PatchLayout layout{.frames = 1, .height = 476, .width = 644, .patch_size = 14,
//                                .merge_size = 2, .temporal_patch_size = 2};
//   std::vector<float> patches(headrace::patch_values(layout));
//   headrace::normalize_patches(resized.data(), layout, table, patches.data());
//
// Pixels are RGB, one byte a channel, rows from the top, without padding: [frames, height, width,
// 3]. The functions hold nothing between calls; any number of threads may call them at the same
// time.

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/abi.h"

namespace headrace::inline v0 {

/// The numbers are those of `resample` in preprocessor_config.json.
enum class ResizeFilter : int { kLanczos = 1, kBilinear = 2, kBicubic = 3 };

struct ImageSize {
  int64_t height = 0, width = 0;
};

/// Neither side of an image may be longer.
inline constexpr int64_t kMaxImageSide = int64_t{1} << 20;
/// No call takes or makes more pixels, over all frames.
inline constexpr int64_t kMaxPixels = int64_t{1} << 31;

/// Resizes one image the way Pillow up to version 12 does, bit for bit: separable with
/// antialiasing, horizontally first; weights of 22 bits behind the point; each pass rounds to a
/// byte, and is left out if its side stays as it is. All instruction sets give the same bits.
///
/// from: 3 * height * width bytes; to: as many of its own size; they must not overlap. Takes little
/// memory beside: some rows of to.width pixels, and weights. Throws Error kInvalidArgument for a
/// size below 1, a side above kMaxImageSide, more than kMaxPixels (between the passes, too), or
/// another filter; std::bad_alloc.
HEADRACE_API void resize_rgb(const uint8_t* from, ImageSize from_size, uint8_t* to,
                             ImageSize to_size, ResizeFilter filter);

/// How frames of one size become rows of patches.
struct PatchLayout {
  int64_t frames = 1;               ///< >= 1; of a still image 1
  int64_t height = 0, width = 0;    ///< multiples of patch_size * merge_size, in pixels
  int32_t patch_size = 14;          ///< a patch's side, in pixels, 1 to 256
  int32_t merge_size = 2;           ///< a block of rows is merge_size x merge_size patches, 1 to 16
  int32_t temporal_patch_size = 1;  ///< frames that share a row, 1 to 16
};

/// The number of floats that normalize_patches writes: ceil(frames / temporal_patch_size) * (height
/// / patch_size) * (width / patch_size) rows of 3 * temporal_patch_size * patch_size^2. Throws
/// Error kInvalidArgument for a layout that breaks the bounds above, or of more than kMaxPixels
/// pixels.
HEADRACE_API size_t patch_values(const PatchLayout& layout);

/// Writes table[256 * channel + byte] for each byte of `pixels`. Rows are ordered (temporal patch,
/// block row, block column, row in the block, column in the block); the values of a row (channel,
/// frame, y, x). The last frame is repeated where temporal_patch_size does not divide `frames`.
///
/// pixels: 3 * frames * height * width bytes. table: 768 floats, one per byte and channel. out:
/// patch_values(layout) floats. Moves the pixels once and the floats once. Throws as patch_values
/// does, and Error kInvalidArgument for a table of another size.
HEADRACE_API void normalize_patches(const uint8_t* pixels, const PatchLayout& layout,
                                    std::span<const float> table, float* out);

}  // namespace headrace::inline v0
