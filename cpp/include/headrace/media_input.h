#pragma once

// Images and clips of a request: rows of its prompt that stand for no token.
//
// The prompt has a placeholder, any id of the vocabulary, for each row; runs say where the rows of
// an item stand. An item comes as resized pixels, for a model with a vision tower, or as embeddings
// made elsewhere, for any model whose device takes rows that are given (ModelInfo).

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "headrace/abi.h"
#include "headrace/media.h"

namespace headrace::inline v0 {

/// Rows over time, height and width, in that order.
struct MediaGrid {
  int32_t t = 0, h = 0, w = 0;
  bool operator==(const MediaGrid&) const = default;
};

/// A run of an item's rows in a prompt.
struct MediaRun {
  int32_t position = 0;   ///< of the prompt, where its first row stands
  int32_t count = 0;      ///< rows, >= 1
  int32_t first_row = 0;  ///< of the item's, its first one
  /// Positions for RoPE on three axes: t * h * w == count; of pixels h and w are those that their
  /// patches give. t == 0: those of text. A model whose RoPE has one axis goes by the positions of
  /// text.
  MediaGrid grid{};
  /// [grid.t] what each grid adds to the axis of time: from 0 up, not descending, at most 2^24.
  std::vector<int32_t> steps{};
};

/// Pixels on their way into the model's vision tower.
struct PixelInput {
  /// [frames, height, width, 3] RGB, resized as the model wants them. Null: none are given. Frames
  /// are those of a clip, or the tiles of an image.
  std::shared_ptr<const std::vector<uint8_t>> data{};
  PatchLayout layout{};
  std::vector<float> table{};  ///< [768] what normalize_patches() takes: finite
};

/// What a tower has made elsewhere.
struct EmbeddingInput {
  /// [1 + added][rows][hidden_size] float32, finite in the model's dtype, too: in place of the
  /// token embeddings, then what is added behind layer 0, 1, ... Null: none are given.
  std::shared_ptr<const std::vector<float>> values{};
  int32_t rows = 0;  ///< >= 1
  /// Fewer than the model has layers; of a model with a tower as many as that adds, or none.
  int32_t added = 0;
};

/// An image or a clip. Either pixels or embeddings.
struct MediaInput {
  bool video = false;  ///< for RequestStats
  PixelInput pixels{};
  EmbeddingInput embeddings{};
  /// Names the content, in place of a digest that the engine computes of it: who gives one key to
  /// two contents gets the rows of either. All zero: none.
  std::array<uint64_t, 4> key{};
  std::vector<MediaRun> runs{};  ///< in order of position; they have each row of the item once
};

}  // namespace headrace::inline v0
