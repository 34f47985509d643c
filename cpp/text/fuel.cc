#include "text/fuel.h"

#include "base/check.h"

namespace headrace::text {

void Fuel::out() const { throw_error(ErrorCode::kLimitExceeded, what_, " takes too many steps"); }

}  // namespace headrace::text
