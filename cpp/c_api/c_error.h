#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>

#include "base/check.h"
#include "headrace/c.h"

namespace headrace::c_api {

/// Keeps a failure as this thread's last one. Returns its code.
headrace_code fail(ErrorCode code, const char* message) noexcept;

/// Runs `body`; what it throws becomes the code that is returned.
template <class Body>
headrace_code guarded(Body&& body) noexcept {
  try {
    body();
    return HEADRACE_OK;
  } catch (const Error& error) {
    return fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "there is no memory left.");
  } catch (const std::exception& error) {
    return fail(ErrorCode::kInternal, error.what());
  } catch (...) {
    return fail(ErrorCode::kInternal, "an exception of unknown type.");
  }
}

/// What `pointer` points to. Throws Error(kInvalidArgument) if it is NULL; `what` names it.
template <class T>
T& deref(T* pointer, const char* what) {
  if (pointer == nullptr) throw_error(ErrorCode::kInvalidArgument, what, " is NULL.");
  return *pointer;
}

inline const char* or_empty(const char* string) noexcept { return string == nullptr ? "" : string; }

/// HEADRACE_FOREVER (and anything below 0) is nullopt.
inline std::optional<std::chrono::nanoseconds> to_timeout(int64_t nanoseconds) {
  if (nanoseconds < 0) return std::nullopt;
  return std::chrono::nanoseconds(nanoseconds);
}

}  // namespace headrace::c_api
