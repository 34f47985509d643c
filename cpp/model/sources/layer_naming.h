#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/config/model_config.h"
#include "model/sources/sources.h"

namespace headrace {

/// How a checkpoint keeps a layer's experts: E of them, I the width of one, H the hidden size.
enum class ExpertLayout : uint8_t {
  kSeparate,         ///< tensors of their own
  kFused,            ///< one tensor [E, 2 I, H] and one [E, H, I]
  kFusedTransposed,  ///< [E, H, 2 I] and [E, I, H]
};

/// How a checkpoint lays out and names its tensors.
struct TensorNaming {
  CheckpointLayout layout = CheckpointLayout::kTorch;
  std::string prefix = "model.";
  ExpertLayout experts = ExpertLayout::kSeparate;
  std::string vision;  ///< before the tower's tensors, of a model that has one
  std::string head = "lm_head.weight";
  ExpertLayout mtp_experts = ExpertLayout::kSeparate;  ///< of the MTP block's layer
  std::string layers = "layers.";  ///< behind the prefix, before a layer's number
};

/// Makes the sources of one layer from what its modules are called.
class LayerNaming {
 public:
  LayerNaming(const TensorNaming& naming, int32_t layer)
      : paddle_(naming.layout == CheckpointLayout::kPaddle),
        experts_(naming.experts),
        layer_(layer),
        name_("layers." + std::to_string(layer) + "."),
        stem_(naming.prefix + naming.layers + std::to_string(layer) + ".") {}
  /// Of an MTP block's layer, which counts as the decoder's first: `own` instead of "layers.3.",
  /// and in the checkpoint `stored`.
  LayerNaming(const TensorNaming& naming, std::string own, const std::string& stored)
      : paddle_(naming.layout == CheckpointLayout::kPaddle),
        experts_(naming.mtp_experts),
        layer_(0),
        name_(std::move(own)),
        stem_(naming.prefix + stored) {}

  bool paddle() const noexcept { return paddle_; }
  ExpertLayout experts() const noexcept { return experts_; }
  int32_t layer() const noexcept { return layer_; }
  /// "layers.3." + `name`, as the decoder calls it.
  std::string own(const std::string& name) const { return name_ + name; }
  /// "model.layers.3." + `module`, as the checkpoint does.
  std::string stored(const std::string& module) const { return stem_ + module; }

  VectorSource norm(const std::string& name, const std::string& module, int64_t n) const;
  /// Of `modules` stacked along n, their biases too if `bias`. Adapters may change it.
  LinearSource linear(const std::string& name, const std::vector<StoredPart>& modules, int64_t k,
                      bool bias, WeightUse use = WeightUse::kLinear) const;
  /// The weights alone, of modules stacked along n, which no adapter changes.
  MatrixSource matrix(const std::string& name, const std::vector<StoredPart>& modules, int64_t k,
                      WeightUse use = WeightUse::kLinear) const;

 private:
  std::vector<StoredPart> tensors(const std::vector<StoredPart>& modules, const char* kind) const;

  bool paddle_;
  ExpertLayout experts_;
  int32_t layer_;
  std::string name_, stem_;
};

}  // namespace headrace
