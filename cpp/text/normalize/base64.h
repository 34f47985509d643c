#pragma once

#include <string>
#include <string_view>

namespace headrace::text {

/// The bytes that base64 with padding stands for (RFC 4648). Throws Error(kCorruptFile).
std::string base64_bytes(std::string_view text);

}  // namespace headrace::text
