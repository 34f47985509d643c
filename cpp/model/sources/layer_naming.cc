#include "model/sources/layer_naming.h"

namespace headrace {

VectorSource LayerNaming::norm(const std::string& name, const std::string& module,
                               int64_t n) const {
  return {.name = own(name), .parts = {{stored(module) + ".weight", n}}, .is_norm = true};
}

LinearSource LayerNaming::linear(const std::string& name, const std::vector<StoredPart>& modules,
                                 int64_t k, bool bias, WeightUse use) const {
  LinearSource out;
  out.matrix = matrix(name, modules, k, use);
  out.matrix.adaptable = true;
  if (bias) out.bias = {.name = own(name + "_bias"), .parts = tensors(modules, ".bias")};
  return out;
}

MatrixSource LayerNaming::matrix(const std::string& name, const std::vector<StoredPart>& modules,
                                 int64_t k, WeightUse use) const {
  return {.name = own(name),
          .parts = tensors(modules, ".weight"),
          .k = k,
          .transposed = paddle_,
          .use = use};
}

std::vector<StoredPart> LayerNaming::tensors(const std::vector<StoredPart>& modules,
                                             const char* kind) const {
  std::vector<StoredPart> out = modules;
  for (StoredPart& part : out) part.name = stem_ + part.name + kind;
  return out;
}

}  // namespace headrace
