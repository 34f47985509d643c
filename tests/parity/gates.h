#pragma once

// One gate of each kind, for tests of ops that take one.

#include "backend/contract/activation.h"

namespace headrace {

/// gpt-oss's numbers in the last one, but for a limit that uniform numbers reach.
inline constexpr GateSpec kGates[] = {
    {},
    {.activation = Activation::kGeluErf},
    {.activation = Activation::kGeluTanh},
    {.limit = 0.6f, .alpha = 1.702f},
    {.factor = 0.4f},
};

}  // namespace headrace
