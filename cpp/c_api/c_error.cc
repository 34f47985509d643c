#include "c_api/c_error.h"

#include <string>

#include "headrace/version.h"

namespace headrace::c_api {

namespace {

struct LastError {
  headrace_code code = HEADRACE_OK;
  std::string message;
};

thread_local LastError last_error;

static_assert(HEADRACE_INTERNAL == static_cast<int>(ErrorCode::kInternal));
static_assert(HEADRACE_NOT_FINITE == static_cast<int>(ErrorCode::kNotFinite));

}  // namespace

headrace_code fail(ErrorCode code, const char* message) noexcept {
  last_error.code = static_cast<headrace_code>(code);
  try {
    last_error.message = message;
  } catch (const std::exception&) {
    last_error.message.clear();
  }
  return last_error.code;
}

}  // namespace headrace::c_api

using namespace headrace;

const char* headrace_code_name(headrace_code code) {
  return error_code_name(static_cast<ErrorCode>(code));
}

headrace_code headrace_last_error_code(void) { return c_api::last_error.code; }

const char* headrace_last_error_message(void) { return c_api::last_error.message.c_str(); }

const char* headrace_version(void) { return version(); }
