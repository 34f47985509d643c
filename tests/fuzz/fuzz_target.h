#pragma once

// A fuzz target calls one parser on arbitrary bytes. Refusing them with a headrace::Error is right;
// any other exception, an InternalError included, ends the process and counts as a finding.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "headrace/status.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace headrace {

inline std::string_view as_text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

template <class Parse>
int refuse_or_accept(Parse parse) {
  try {
    parse();
  } catch (const InternalError&) {
    throw;
  } catch (const Error&) {
    return 0;
  }
  return 0;
}

}  // namespace headrace
