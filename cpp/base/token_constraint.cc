#include "headrace/token_constraint.h"

namespace headrace::inline v0 {

TokenMatcher::~TokenMatcher() = default;
void TokenMatcher::interrupt() noexcept {}
TokenConstraint::~TokenConstraint() = default;

}  // namespace headrace::inline v0
