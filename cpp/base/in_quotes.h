#pragma once

#include <string>
#include <string_view>

namespace headrace {

/// `text` in quotes, escaped to ASCII as in JSON and cut to a length fit for a message. What is
/// not UTF-8 becomes U+FFFD.
std::string in_quotes(std::string_view text);

}  // namespace headrace
