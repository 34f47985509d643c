#pragma once

#include "c_api/c_error.h"
#include "headrace/c.h"
#include "headrace/media_input.h"

namespace headrace::c_api {

/// A copy. Throws Error for a null pointer, or sizes that no request has.
MediaInput to_media_input(const headrace_media_input* given);

}  // namespace headrace::c_api
