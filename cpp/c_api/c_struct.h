#pragma once

// Structs that grow: each begins with struct_size, the size its caller was compiled with.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "c_api/c_error.h"

namespace headrace::c_api {

/// Larger ones are garbage, not a struct of the future.
inline constexpr size_t kMaxStructSize = 4096;

inline void check_struct_size(size_t size, const char* what) {
  if (size < sizeof(size_t) || size > kMaxStructSize) {
    throw_error(ErrorCode::kInvalidArgument, what, "->struct_size is ", size,
                ": set it with the struct's init function or to its sizeof.");
  }
}

/// A struct given by a caller, with the defaults of ours for the fields that his lacks. Throws
/// Error(kUnsupported) if it has fields unknown here that are not 0.
template <class T>
T read_struct(const T* given, const T& defaults, const char* what) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T>);
  const size_t size = deref(given, what).struct_size;
  check_struct_size(size, what);
  const auto* bytes = reinterpret_cast<const std::byte*>(given);
  const auto unknown = [](std::byte byte) { return byte != std::byte{0}; };
  if (size > sizeof(T) && std::any_of(bytes + sizeof(T), bytes + size, unknown)) {
    throw_error(ErrorCode::kUnsupported, what,
                " has fields that this library doesn't know: it is older than the program's "
                "headrace/c.h. Set them to 0 or use a newer library.");
  }
  T out = defaults;
  std::memcpy(&out, given, std::min(size, sizeof(T)));
  return out;
}

/// Options that may be NULL: the defaults.
template <class T>
T read_options(const T* given, const T& defaults) {
  return given == nullptr ? defaults : read_struct(given, defaults, "options");
}

/// The other way: fills as much as the caller's struct has, and zeroes what it has beyond ours.
/// REQUIRES: check_struct_size(size).
template <class T>
void write_struct(T* out, size_t size, T value) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T>);
  value.struct_size = size;
  std::memset(static_cast<void*>(out), 0, size);
  std::memcpy(static_cast<void*>(out), &value, std::min(size, sizeof(T)));
}

/// The init functions: they have no result, so that a wrong size is left for the first use to find.
template <class T>
void init_struct(T* out, size_t size, const T& defaults) noexcept {
  if (out == nullptr || size < sizeof(size_t) || size > kMaxStructSize) return;
  write_struct(out, size, defaults);
}

inline void check_reserved(int32_t reserved) {
  if (reserved != 0) {
    throw_error(ErrorCode::kUnsupported, "a reserved field is ", reserved,
                ": set it to 0 with the struct's init function, or use a newer library.");
  }
}

/// Enumerations count from 0; the engine trusts a value of the C++ type.
template <class Enum>
Enum to_enum(int32_t value, Enum last, const char* field) {
  if (value < 0 || value > static_cast<int32_t>(last)) {
    throw_error(ErrorCode::kInvalidArgument, field, " is ", value, ": it must be one of the ",
                static_cast<int32_t>(last) + 1, " values that the header names for it.");
  }
  return static_cast<Enum>(value);
}

}  // namespace headrace::c_api
