#pragma once

// Extended grapheme clusters (UAX 29), as the `unicode-segmentation` crate has them.

#include <cstddef>
#include <string_view>

namespace headrace::text {

/// The end of the cluster that begins at `at`. REQUIRES: `at` is the start of one, not the text's
/// end.
size_t grapheme_end(std::string_view text, size_t at) noexcept;

}  // namespace headrace::text
