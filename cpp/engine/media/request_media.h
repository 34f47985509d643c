#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/media/encoder_cache.h"
#include "engine/media/media_limits.h"
#include "engine/media/rope_layout.h"
#include "headrace/media_input.h"
#include "kv/cache_identity.h"

namespace headrace::internal {

/// Some rows of an item that are encoded, or given, in one go: some of its grids over time.
struct MediaUnit {
  int32_t first_row = 0, rows = 0;
  int32_t first_grid = 0;  ///< of pixels
  PatchGrid grid;          ///< likewise
};

/// An image or a clip of a request.
struct RequestItem {
  PixelInput pixels;  ///< without pixels: embeddings have them
  EmbeddingInput embeddings;
  MediaDigest digest{};  ///< of everything that decides its rows
  int32_t rows = 0;
  int32_t outputs = 1;              ///< tensors that it has: 1 + those that are added
  std::vector<MediaUnit> units;     ///< in order of rows
  std::vector<uint8_t> is_counted;  ///< [units] among the encoded or the found ones (ModelStats)

  bool has_pixels() const noexcept { return pixels.data != nullptr; }
  /// The unit that has a row.
  size_t unit_of(int32_t row) const;
};

/// Rows of an item at positions [position, position + count) of a prompt.
struct MediaPlace {
  int32_t position = 0, count = 0;
  size_t item = 0;
  int32_t first_row = 0;
  int32_t end() const noexcept { return position + count; }
};

/// The images and clips of a request: made by its caller's thread, then the loop's.
class RequestMedia {
 public:
  /// Cuts checked media (check_media.h) into units and digests them.
  /// Throws Error(kLimitExceeded), naming the item, for a unit that the model's memory for them
  /// can't hold; std::bad_alloc.
  RequestMedia(std::vector<MediaInput> media, const MediaLimits& limits);

  std::vector<RequestItem>& items() noexcept { return items_; }
  std::span<const MediaPlace> places() const noexcept { return places_; }
  /// Behind the last row.
  int32_t end() const noexcept { return places_.back().end(); }
  const RopeLayout& rope() const noexcept { return rope_; }
  /// A place's rows see each other, and come in one step.
  bool both_ways() const noexcept { return both_ways_; }
  /// For CacheIdentity: a run each.
  const MediaItems& identity() const noexcept { return identity_; }
  int32_t image_rows() const noexcept { return image_rows_; }
  int32_t video_rows() const noexcept { return video_rows_; }

  /// Units that the next rows of the request need: they stay while they are pinned.
  void pin(size_t item, size_t unit, std::shared_ptr<const EncodedRows> rows);
  void unpin() noexcept { pins_.clear(); }
  /// The pinned unit of an item that has a row. REQUIRES: it is pinned.
  const EncodedRows& pinned(size_t item, int32_t row) const;

 private:
  struct Pin {
    size_t item, unit;
    std::shared_ptr<const EncodedRows> rows;
  };

  std::vector<RequestItem> items_;
  std::vector<MediaPlace> places_;  ///< by position
  RopeLayout rope_;
  MediaItems identity_;
  bool both_ways_ = false;
  int32_t image_rows_ = 0, video_rows_ = 0;
  std::vector<Pin> pins_;
};

/// Bytes that a unit's rows take.
size_t unit_bytes(const RequestItem& item, const MediaUnit& unit, const MediaLimits& limits);

/// The patches of a unit, made of its pixels: many times as large, so that no request keeps them.
std::vector<float> unit_patches(const RequestItem& item, const MediaUnit& unit);

}  // namespace headrace::internal
