#pragma once

// What filters and methods of texts share.

#include <string_view>

#include "text/template/values/compare.h"
#include "text/template/values/run.h"

namespace headrace::text::jinja {

/// str.strip: `sides` has 1 for left, 2 for right. chars: missing or none for space.
Value stripped(Run& run, const Value& text, const Value& chars, int sides);
/// str.replace; count < 0: all.
Value replaced(Run& run, std::string_view text, std::string_view old, std::string_view by,
               int64_t count);
/// str.splitlines.
Value split_lines(Run& run, const Value& text, bool keep_ends);
/// str.center (where: 0), ljust (1), rjust (2).
Value padded(Run& run, const Value& text, int64_t width, std::string_view fill, int where);
/// Texts joined; others become texts if `any`, else fail.
Value joined(Run& run, std::string_view between, const Value& values, bool any, const Value& path);
/// str.rsplit(separator, 1)[0].
std::string_view before_last(Run& run, std::string_view text, std::string_view separator);

}  // namespace headrace::text::jinja
