#pragma once

// HEADRACE_CHECK(condition, parts...): an invariant of ours. Throws InternalError naming the
// expression, the place and the streamed parts. For bad input throw_error() instead.

#include <sstream>
#include <string>

#include "headrace/status.h"

namespace headrace {

/// Concatenates anything that has operator<<.
template <class... Parts>
std::string str_cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <class... Parts>
[[noreturn]] void throw_error(ErrorCode code, const Parts&... parts) {
  throw Error(code, str_cat(parts...));
}

[[noreturn]] void check_failed(const char* expression, const char* file, int line,
                               const std::string& detail);

}  // namespace headrace

#define HEADRACE_CHECK(condition, ...)                                              \
  do {                                                                              \
    if (!(condition)) [[unlikely]]                                                  \
      ::headrace::check_failed(#condition, __FILE__, __LINE__,                      \
                               ::headrace::str_cat("" __VA_OPT__(, ) __VA_ARGS__)); \
  } while (false)
