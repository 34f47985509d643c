#pragma once

// Sanitizers make tests slow: there some leave out cases that repeat what others show.

#include <cstdlib>
#include <string_view>

namespace headrace {

/// False in builds with sanitizers, unless HEADRACE_TEST_CASES is "all"; "some" asks for fewer
/// cases in any build. Each kind of case, branch and edge has one left then.
inline bool every_case() {
#if defined(HEADRACE_ASAN) || defined(HEADRACE_TSAN)
  constexpr std::string_view kUnlessTold = "some";
#else
  constexpr std::string_view kUnlessTold = "all";
#endif
  const char* const told = std::getenv("HEADRACE_TEST_CASES");
  return (told == nullptr ? kUnlessTold : std::string_view(told)) == "all";
}

}  // namespace headrace
