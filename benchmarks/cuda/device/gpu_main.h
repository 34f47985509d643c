#pragma once

// main() of a program that needs a GPU.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>

#include "headrace/status.h"

namespace headrace::bench {

inline constexpr int kNoDevice = 2;

/// run()'s exit status; for what it throws, with the message on stderr, 1, or kNoDevice where there
/// is no usable GPU.
template <class Run>
int gpu_main(const Run& run) {
  try {
    return run();
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return e.code() == ErrorCode::kDevice ? kNoDevice : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}

/// Of a command line's value. Throws std::invalid_argument.
inline double positive(const std::string& text) {
  const double value = std::atof(text.c_str());
  if (value <= 0) throw std::invalid_argument(text + " is no number above 0");
  return value;
}

}  // namespace headrace::bench
