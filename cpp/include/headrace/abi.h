#pragma once

#if __cplusplus <= 201703L
#error \
    "Headrace's headers need C++20: compile with -std=c++20 (CMake: cxx_std_20), or use headrace/c.h."
#endif

// What the shared library exports (docs/embedding.md has the policy).
//
// Public names live in the inline namespace headrace::v0. Code says headrace::Engine; symbols say
// headrace::v0::Engine, so that a program with two incompatible Headraces in it does not link, or
// keeps them apart, instead of mixing them up.

/// Marks a class with functions of its own, or a function, as part of the library's interface.
#define HEADRACE_API [[gnu::visibility("default")]]
/// Marks what is nested in such a class, but is no part of the interface.
#define HEADRACE_LOCAL [[gnu::visibility("hidden")]]
