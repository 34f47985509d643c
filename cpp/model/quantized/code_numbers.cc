#include "model/quantized/code_numbers.h"

#include <utility>

namespace headrace {

CodeNumbers::CodeNumbers(StoredLayer layer) : layer_(std::move(layer)) {
  tensors_ = layer_.tensors;
  groups_.resize(layer_.order.size());
  for (size_t i = 0; i < groups_.size(); ++i) {
    groups_[static_cast<size_t>(layer_.order[i])] =
        static_cast<int32_t>(static_cast<int64_t>(i) / layer_.group_size);
  }
}

void CodeNumbers::read(int64_t feature, int64_t first, int64_t count, float* out) const {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t input = first + i;
    const int64_t group =
        groups_.empty() ? input / layer_.group_size : groups_[static_cast<size_t>(input)];
    const int32_t code = layer_.code(feature, input) - layer_.zero(feature, group);
    out[i] = static_cast<float>(code) * layer_.scale(feature, group);
  }
}

}  // namespace headrace
