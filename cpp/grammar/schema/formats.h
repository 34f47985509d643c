#pragma once

#include <string_view>

namespace headrace::grammar {

/// A pattern of the texts of a format; "" for one that isn't known.
std::string_view format_pattern(std::string_view name);

}  // namespace headrace::grammar
