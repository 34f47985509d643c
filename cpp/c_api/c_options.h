#pragma once

#include <memory>

#include "c_api/c_constraint.h"
#include "headrace/c.h"
#include "headrace/options.h"
#include "headrace/request.h"

namespace headrace::c_api {

// C structs as those of the C++ API. They throw Error(kInvalidArgument), naming the field, for what
// C++ could not express: a missing array, a length that can't be. Ranges are the engine's matter.

ModelOptions to_model_options(const headrace_model_options* options);
/// `constraint` is the one of the result, or null.
RequestOptions to_request_options(const headrace_request_options* options,
                                  std::shared_ptr<ForeignConstraint>& constraint);

}  // namespace headrace::c_api
