#include "cpp/model/vision/tower_harness.h"

#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "model/checkpoint/checkpoint.h"
#include "model/load/list_sources.h"
#include "model/load/load_config.h"
#include "model/sources/model_sources.h"
#include "model/vision/make_tower.h"
#include "model/weights/weight_loader.h"

namespace headrace {

TowerHarness::TowerHarness(const std::string& isa, const std::filesystem::path& folder,
                           DType storage, int32_t threads, const Quantization& quantization)
    : TowerHarness(make_cpu_backend({.num_threads = threads, .isa = isa}), folder, storage,
                   quantization) {}

TowerHarness::TowerHarness(std::shared_ptr<Backend> backend, const std::filesystem::path& folder,
                           DType storage, const Quantization& quantization)
    : backend_(std::move(backend)),
      activation_(backend_->activation_dtype(storage)),
      config_(load_model_config(folder)) {
  const Checkpoint checkpoint(folder);
  const ModelSources sources = checkpoint_sources(config_, checkpoint, quantization);
  WeightLoader loader(*backend_, &checkpoint, storage, 0.0f);
  tower_ = make_vision_tower(*backend_, config_, *sources.vision, loader, storage);
}

std::vector<float> TowerHarness::encode(const std::vector<float>& patches, const PatchGrid& grid) {
  const int64_t rows = tower_->rows(grid), hidden = config_.hidden_size;
  const int64_t numbers = tower_->outputs() * rows * hidden;
  std::vector<float> out(static_cast<size_t>(numbers));
  const Backend::Buffer memory = backend_->allocate(out.size() * dtype_size(activation_));
  const TensorView all(memory.data, activation_, {tower_->outputs() * rows, hidden});
  std::vector<TensorView> views;
  for (int32_t i = 0; i < tower_->outputs(); ++i) views.push_back(all.rows_from(i * rows, rows));
  {
    // What begin() is given need not live on.
    auto own = std::make_unique<std::vector<float>>(patches);
    const auto run = tower_->begin(own->data(), grid, views);
    own.reset();
    int32_t pieces = 1;
    while (!run->advance()) ++pieces;
    HEADRACE_CHECK(pieces == run->num_pieces(), pieces);
  }
  if (activation_ == DType::kF32) {
    backend_->read_back(memory.data, out.data(), out.size() * sizeof(float));
    return out;
  }
  std::vector<uint16_t> halves(out.size());
  backend_->read_back(memory.data, halves.data(), halves.size() * sizeof(uint16_t));
  std::ranges::transform(halves, out.begin(),
                         activation_ == DType::kBF16 ? bf16_to_f32 : f16_to_f32);
  return out;
}

}  // namespace headrace
