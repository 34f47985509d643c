#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"
#include "headrace/media.h"

namespace headrace {

namespace {

constexpr int64_t kChannels = 3, kLevels = 256;

void check_range(const char* name, int64_t value, int64_t most) {
  if (value < 1 || value > most) {
    throw_error(ErrorCode::kInvalidArgument, name, " must lie in [1, ", most, "], got ", value);
  }
}

void check_layout(const PatchLayout& layout) {
  check_range("patch_size", layout.patch_size, 256);
  check_range("merge_size", layout.merge_size, 16);
  check_range("temporal_patch_size", layout.temporal_patch_size, 16);
  check_range("height", layout.height, kMaxImageSide);
  check_range("width", layout.width, kMaxImageSide);
  // A row holds temporal_patch_size frames, whether there are so many or not.
  check_range("the number of pixels of a frame", layout.height * layout.width,
              kMaxPixels / layout.temporal_patch_size);
  check_range("the number of frames", layout.frames, kMaxPixels / (layout.height * layout.width));
  const int64_t block = int64_t{layout.patch_size} * layout.merge_size;
  if (layout.height % block != 0 || layout.width % block != 0) {
    throw_error(ErrorCode::kInvalidArgument, "frames of ", layout.height, " x ", layout.width,
                " pixels: both must be multiples of patch_size * merge_size, ", block);
  }
}

/// One channel of one frame's patch: patch_size^2 floats.
void write_channel(const uint8_t* corner, int64_t row_bytes, int64_t patch, const float* table,
                   float* out) {
  for (int64_t y = 0; y < patch; ++y, corner += row_bytes, out += patch) {
    for (int64_t x = 0; x < patch; ++x) out[x] = table[corner[kChannels * x]];
  }
}

/// One row of the result, for the patch whose top left byte is `offset` into a frame. `frames` has
/// the row's frames in order.
void write_row(const uint8_t* const* frames, int64_t offset, const PatchLayout& layout,
               const float* table, float* out) {
  const int64_t area = int64_t{layout.patch_size} * layout.patch_size;
  for (int64_t channel = 0; channel < kChannels; ++channel) {
    for (int64_t t = 0; t < layout.temporal_patch_size; ++t, out += area) {
      if (t > 0 && frames[t] == frames[t - 1]) {
        std::memcpy(out, out - area, static_cast<size_t>(area) * sizeof(float));
      } else {
        write_channel(frames[t] + offset + channel, kChannels * layout.width, layout.patch_size,
                      table + kLevels * channel, out);
      }
    }
  }
}

}  // namespace

}  // namespace headrace

size_t headrace::patch_values(const PatchLayout& layout) {
  check_layout(layout);
  const int64_t grids = ceil_div<int64_t>(layout.frames, layout.temporal_patch_size);
  return static_cast<size_t>(grids * layout.temporal_patch_size * layout.height * layout.width *
                             kChannels);
}

void headrace::normalize_patches(const uint8_t* pixels, const PatchLayout& layout,
                                 std::span<const float> table, float* out) {
  check_layout(layout);
  if (table.size() != kChannels * kLevels) {
    throw_error(ErrorCode::kInvalidArgument, "the table must have ", kChannels * kLevels,
                " floats, got ", table.size());
  }
  const int64_t patch = layout.patch_size, merge = layout.merge_size;
  const int64_t together = layout.temporal_patch_size;
  const int64_t block = patch * merge, row_bytes = kChannels * layout.width;
  const int64_t values = kChannels * together * patch * patch;
  const uint8_t* frames[16];
  for (int64_t first = 0; first < layout.frames; first += together) {
    for (int64_t t = 0; t < together; ++t) {
      frames[t] = pixels + std::min(first + t, layout.frames - 1) * layout.height * row_bytes;
    }
    for (int64_t y = 0; y < layout.height; y += block) {
      for (int64_t x = 0; x < layout.width; x += block) {
        for (int64_t cell = 0; cell < merge * merge; ++cell, out += values) {
          const int64_t top = y + cell / merge * patch, left = x + cell % merge * patch;
          write_row(frames, top * row_bytes + kChannels * left, layout, table.data(), out);
        }
      }
    }
  }
}
