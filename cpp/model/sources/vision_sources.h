#pragma once

// Which stored tensors make up a vision tower. W is its width, H the decoder's hidden size, m the
// number of patches that become a row.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/config/vision_config.h"
#include "model/sources/sources.h"

namespace headrace {

struct VisionBlockSources {
  NormSource norm_1, norm_2;
  LinearSource q, kv, proj;  ///< [W, W], [2 W, W] keys first, [W, W]
  LinearSource up, down;     ///< of a gated MLP: gate and up
};

/// Makes one row of the patches of a square: norm, up, GELU, down; or down alone; or of their mean
/// where `averages`: RMS norm, down.
struct MergerSources {
  NormSource norm;           ///< [W], or [m W] where `joins_first`; empty: none
  bool joins_first = false;  ///< the norm is of joined rows, not of each
  LinearSource up, down;     ///< [m W, m W], [H, m W]; up may be empty
  bool averages = false;     ///< norm [W], down [H, W], no up
};

/// Rows joined to one: up, GELU, down, norm.
struct JoinSources {
  LinearSource up, down;
  NormSource norm;
};

/// In a merger's place: joins the rows of a square, then those of two grids over time.
struct ResamplerSources {
  JoinSources square;  ///< [m W, m W]
  JoinSources grids;   ///< up [m W, 2 m W], down [m W, m W]
  LinearSource out;    ///< [H, m W]
  NormSource norm;     ///< [H] RMS
};

struct VisionSources {
  LinearSource patches;    ///< [W, numbers of a patch]
  VectorSource positions;  ///< [side^2, W], or empty
  std::vector<VisionBlockSources> blocks;
  NormSource last_norm;                       ///< behind the blocks; empty: none
  std::vector<MergerSources> mergers;         ///< the tower's, then those of deepstack_blocks
  std::optional<ResamplerSources> resampler;  ///< then there are no mergers

  std::vector<MatrixSource*> linears();               ///< matrices() but for `patches`
  std::vector<const MatrixSource*> matrices() const;  ///< not empty ones, likewise below
  std::vector<const VectorSource*> vectors() const;
};

/// Makes a tower's sources from what its modules are called.
class VisionNaming {
 public:
  /// `prefix`: before all of the tower's tensors, "visual.". `transposed`: linears are [k, n].
  explicit VisionNaming(std::string prefix, bool transposed = false, std::string own = "vision.")
      : prefix_(std::move(prefix)), transposed_(transposed), own_(std::move(own)) {}
  /// Of modules within one.
  VisionNaming within(const std::string& module, const std::string& own) const {
    return VisionNaming(prefix_ + module, transposed_, own_ + own);
  }

  NormSource norm(const std::string& name, const std::string& module, int64_t n, bool bias) const;
  LinearSource linear(const std::string& name, const std::vector<StoredPart>& modules, int64_t k,
                      bool bias, WeightUse use = WeightUse::kLinear) const;
  /// Rows [first, first + n) of a module of `rows`.
  LinearSource rows(const std::string& name, const std::string& module,
                    std::pair<int64_t, int64_t> first_n, int64_t rows, int64_t k) const;
  /// One of a convolution whose kernel [n, 3, (frames,) side, side] is its stride.
  LinearSource patches(const VisionConfig& config, const std::string& module, bool frames,
                       bool bias) const;
  VectorSource table(const std::string& name, const std::string& tensor, int64_t rows,
                     int64_t columns) const;

 private:
  std::string prefix_;
  bool transposed_;
  std::string own_;
};

}  // namespace headrace
