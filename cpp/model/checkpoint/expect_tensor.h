#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/checkpoint/checkpoint.h"

namespace headrace {

/// "[4, 2]".
std::string shape_text(const std::vector<int64_t>& shape);

/// The tensor of that name. Throws Error(kNotFound), and Error(kCorruptFile) for another shape,
/// naming tensor, expected and found shape.
const CheckpointTensor& expect_tensor(const Checkpoint& checkpoint, const std::string& name,
                                      const std::vector<int64_t>& shape);

}  // namespace headrace
