#pragma once

#include "model/sources/sources.h"

namespace headrace {

/// Of experts whose codes have an order of inputs of their own (act-order): nothing but `down`
/// reads what `gate_up` gives, so that gate_up gives it in down's order, and down has none. Throws
/// Error(kUnsupported) naming a tensor where gate_up isn't stored as codes. Does nothing to others.
void fold_order(MatrixSource& gate_up, MatrixSource& down);

}  // namespace headrace
