#include "model/quantized/code_numbers.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/check.h"

namespace headrace {

namespace {

void check_scales(const StoredLayer& layer) {
  for (int64_t feature = 0; feature < layer.n; ++feature) {
    for (int64_t group = 0; group < layer.groups(); ++group) {
      if (std::isfinite(layer.scale(feature, group))) continue;
      const auto name = std::ranges::find_if(layer.tensors, [](const std::string& tensor) {
        return tensor.find("scale") != std::string::npos;
      });
      throw_error(ErrorCode::kCorruptFile, "tensor ", *name,
                  " holds a scale that is NaN or infinite: get the file again.");
    }
  }
}

}  // namespace

CodeNumbers::CodeNumbers(StoredLayer layer) : layer_(std::move(layer)) {
  check_scales(layer_);
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
