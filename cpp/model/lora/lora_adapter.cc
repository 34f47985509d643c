#include "model/lora/lora_adapter.h"

#include <utility>

namespace headrace {

LoraAdapter::LoraAdapter(std::shared_ptr<Backend> backend,
                         std::vector<std::unique_ptr<PackedLora>> linears, int32_t rank,
                         int32_t num_modules)
    : backend_(std::move(backend)),
      linears_(std::move(linears)),
      rank_(rank),
      num_modules_(num_modules) {
  for (const auto& packed : linears_) {
    if (packed != nullptr) bytes_ += packed->bytes();
  }
}

void LoraAdapter::add_rank(std::unique_ptr<const LoraAdapter> next) {
  bytes_ += next->bytes();
  others_.push_back(std::move(next));
}

}  // namespace headrace
