#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/contract/backend.h"
#include "model/config/model_config.h"
#include "model/config/quantization.h"
#include "model/vision/vision_tower.h"

namespace headrace {

/// The tower of a checkpoint folder, on a CPU backend unless another is given.
class TowerHarness {
 public:
  TowerHarness(std::shared_ptr<Backend> backend, const std::filesystem::path& folder, DType storage,
               const Quantization& quantization = {});
  TowerHarness(const std::string& isa, const std::filesystem::path& folder,
               DType storage = DType::kF32, int32_t threads = 2,
               const Quantization& quantization = {});

  /// Each output's rows, one behind the other: [outputs, rows, H].
  std::vector<float> encode(const std::vector<float>& patches, const PatchGrid& grid);

  /// Another tower of the same backend and model from now on.
  void replace(std::unique_ptr<VisionTower> tower) { tower_ = std::move(tower); }

  const ModelConfig& config() const { return config_; }
  VisionTower& tower() { return *tower_; }
  Backend& backend() { return *backend_; }

 private:
  std::shared_ptr<Backend> backend_;
  DType activation_;
  ModelConfig config_;
  std::unique_ptr<VisionTower> tower_;
};

}  // namespace headrace
