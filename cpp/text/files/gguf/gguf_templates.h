#pragma once

// Chat templates of a GGUF file.

#include <functional>
#include <map>
#include <string>

#include "gguf/gguf_header.h"

namespace headrace::text {

/// By name; "default" is the plain one. Empty if the file has none. Throws Error(kCorruptFile) that
/// names the key: what is no text or not UTF-8, more than 100 of them, a named one that is missing.
std::map<std::string, std::string, std::less<>> gguf_chat_templates(const GgufHeader& header);

}  // namespace headrace::text
