#include "headrace/status.h"

const char* headrace::error_code_name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kOk:
      return "ok";
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kCorruptFile:
      return "corrupt_file";
    case ErrorCode::kOutOfMemory:
      return "out_of_memory";
    case ErrorCode::kLimitExceeded:
      return "limit_exceeded";
    case ErrorCode::kInvalidState:
      return "invalid_state";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kDeadlineExceeded:
      return "deadline_exceeded";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kDevice:
      return "device";
    case ErrorCode::kInternal:
      return "internal";
    case ErrorCode::kNotFinite:
      return "not_finite";
  }
  return "unknown";
}
