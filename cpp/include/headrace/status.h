#pragma once

// Errors of the public API.
//
// Headrace throws for bad input (`Error` with a stable code) and for its own bugs
// (`InternalError`). It never aborts, exits or prints. What can be expected to happen (a full
// queue, a missing key) is a return value, not an exception.

#include <stdexcept>
#include <string>

#include "headrace/abi.h"

namespace headrace::inline v0 {

/// Stable: values are never reused or renumbered.
enum class ErrorCode : int {
  kOk = 0,
  kInvalidArgument = 1,   ///< a value the caller gave is out of range or of the wrong form
  kNotFound = 2,          ///< a file, model, tensor or request of that name does not exist
  kUnsupported = 3,       ///< well formed, but this build or backend cannot run it
  kCorruptFile = 4,       ///< a checkpoint file breaks its format
  kOutOfMemory = 5,       ///< the memory budget cannot hold what was asked for
  kLimitExceeded = 6,     ///< longer or larger than the engine was configured for
  kInvalidState = 7,      ///< the call does not fit the object's state (e.g. submit after stop)
  kCancelled = 8,         ///< the request was cancelled by its owner
  kDeadlineExceeded = 9,  ///< the request's deadline passed before it finished
  kIo = 10,               ///< the operating system refused to read or write
  kDevice = 11,           ///< a device call failed
  kInternal = 12,         ///< a bug in Headrace
  kNotFinite = 13,        ///< the model computed NaN or infinity where numbers belong
};

/// "invalid_argument", "not_found", ... Never null.
HEADRACE_API const char* error_code_name(ErrorCode code) noexcept;

/// Bad input or an unusable environment. The message names the value and the remedy.
class HEADRACE_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// A broken invariant inside Headrace: please report it.
class HEADRACE_API InternalError : public Error {
 public:
  explicit InternalError(const std::string& message) : Error(ErrorCode::kInternal, message) {}
};

}  // namespace headrace::inline v0
