#pragma once

// Matchers written by hand for the patterns of common families: many times as fast as the general
// engine, with the same matches.

#include <memory>
#include <span>
#include <string_view>

#include "text/regex/regex.h"

namespace headrace::text {

/// The matcher for exactly this pattern, or null.
std::shared_ptr<const Regex> own_matcher(std::string_view pattern);

/// The pattern that `ByteLevel` cuts with (GPT-2's).
extern const std::string_view kGpt2Pattern;

/// All patterns that have a matcher, for tests.
std::span<const std::string_view> own_patterns();

}  // namespace headrace::text
