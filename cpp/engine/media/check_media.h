#pragma once

// Checks of what a request brings, before anything is computed with it. Errors name the item.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/check.h"
#include "engine/media/media_limits.h"
#include "headrace/media_input.h"

namespace headrace::internal {

template <class... Parts>
[[noreturn]] void refuse_item(ErrorCode code, size_t item, const Parts&... parts) {
  throw_error(code, "media[", item, "]: ", parts...);
}

/// Rows of an item's runs, once they are checked.
int64_t rows_of(const MediaInput& item);

/// Runs: in order, disjoint, inside the prompt, covering each item's rows once, with positions that
/// can be counted to the context's end. Content: of one kind, of the sizes it says, finite numbers.
/// Throws Error (kInvalidArgument, kUnsupported, kLimitExceeded).
void check_media(std::span<const MediaInput> media, int64_t prompt_tokens, int64_t max_tokens,
                 const MediaLimits& limits);

/// The patches of pixels over time, height and width. REQUIRES: patch_values() takes the layout.
PatchGrid patch_grid(const PatchLayout& layout);

}  // namespace headrace::internal
