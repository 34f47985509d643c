#pragma once

// CacheIdentity: what decides a sequence's keys and values beside its token ids. Two sequences
// share a KV block only if they agree in all of it up to the block's end. Everything here is
// compared as it is; hashes only find candidates.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace headrace {

/// What holds for a sequence from its first position on.
struct SequenceIdentity {
  uint64_t adapter = 0;  ///< never given twice in a process; 0: no adapter
  /// The prompt's length where RoPE scales by it (RopeSpec::dynamic_original_max); 0: it doesn't.
  int32_t rope_len = 0;
  bool operator==(const SequenceIdentity&) const = default;
};

/// Content identity of an item (an image, a video): a cryptographic digest of everything that
/// decides its rows and their positions - pixels after resizing, grid, modality, and the options of
/// the processor. 256 bits, since users share a cache: nobody may be able to find two alike.
using MediaDigest = std::array<uint64_t, 4>;

/// An item at positions [first, last) of a prompt.
struct MediaItem {
  MediaDigest digest{};
  int32_t first = 0;
  int32_t last = 0;  ///< behind its last row; > first
  bool operator==(const MediaItem&) const = default;
};

/// The items of a prompt in order, which don't overlap. Null: none. Shared with the blocks of the
/// prefix index that they reach into.
using MediaItems = std::shared_ptr<const std::vector<MediaItem>>;

struct CacheIdentity {
  SequenceIdentity sequence;
  MediaItems media;

  /// The items with rows at positions [first, last). Those before them need no mention: they are in
  /// the blocks before. Valid as long as `media` is.
  std::span<const MediaItem> media_in(size_t first, size_t last) const {
    if (media == nullptr) return {};
    const auto begins_before = [&](const MediaItem& item) {
      return static_cast<size_t>(item.first) < last;
    };
    const auto ends_before = [&](const MediaItem& item) {
      return static_cast<size_t>(item.last) <= first;
    };
    const auto begin = std::ranges::partition_point(*media, ends_before);
    const auto end = std::partition_point(begin, media->end(), begins_before);
    return {begin, end};
  }

  /// Whether `media` is in order, without overlap, and inside a prompt of this many tokens.
  bool fits(size_t prompt_tokens) const {
    if (media == nullptr) return true;
    int32_t free_from = 0;
    for (const MediaItem& item : *media) {
      if (item.first < free_from || item.last <= item.first) return false;
      free_from = item.last;
    }
    return static_cast<size_t>(free_from) <= prompt_tokens;
  }
};

}  // namespace headrace
