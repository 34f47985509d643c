#include "model/checkpoint/expect_tensor.h"

#include "base/check.h"

namespace headrace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (const int64_t dim : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(dim);
  return out + "]";
}

const CheckpointTensor& expect_tensor(const Checkpoint& checkpoint, const std::string& name,
                                      const std::vector<int64_t>& shape) {
  const CheckpointTensor* tensor = checkpoint.find(name);
  if (tensor == nullptr) {
    throw_error(ErrorCode::kNotFound, "the checkpoint has no tensor ", name, " ", shape_text(shape),
                ".");
  }
  if (tensor->shape != shape) {
    throw_error(ErrorCode::kCorruptFile, "tensor ", name, " has the shape ",
                shape_text(tensor->shape), "; config.json asks for ", shape_text(shape), ".");
  }
  return *tensor;
}

}  // namespace headrace
