#include "model/vision/make_tower.h"

#include <algorithm>

#include "base/check.h"
#include "model/vision/vit_run.h"

namespace headrace {

namespace {

/// Of a tile, on a host; on other devices at least.
constexpr int64_t kHostTileRows = 512;

/// Of one grid over time, and of an item.
constexpr int64_t kMaxGridPatches = 1 << 18;
constexpr int64_t kMaxPatches = 1 << 28;

[[noreturn]] void refuse(const PatchGrid& grid, const std::string& why) {
  throw_error(ErrorCode::kInvalidArgument, "a grid of ", grid.t, " x ", grid.h, " x ", grid.w,
              " patches: ", why, ".");
}

class VitTower final : public VisionTower {
 public:
  VitTower(Backend& backend, const ModelConfig& config, const VisionSources& sources,
           WeightReader& reader, DType storage)
      : model_{.backend = backend,
               .config = *config.vision,
               .hidden = config.hidden_size,
               .activation = backend.activation_dtype(storage),
               .products = storage == DType::kBF16 ? storage : DType::kF32,
               .tile_rows = tile_rows(backend.device_info()),
               .weights = load_vit(sources, reader)} {
    if (!backend.device_info().host_memory) take_positions(backend, model_.weights);
  }

  PatchShape patch_shape() const override {
    const VisionConfig& config = model_.config;
    return {config.patch_size, config.patches_by_row ? 1 : config.merge_size,
            config.temporal_patch_size};
  }
  int32_t group() const override { return model_.config.merge_grids; }
  int32_t outputs() const override {
    return 1 + static_cast<int32_t>(model_.config.deepstack_blocks.size());
  }

  int64_t rows(const PatchGrid& grid) const override {
    const VisionConfig& config = model_.config;
    if (grid.t < 1 || grid.h < 1 || grid.w < 1) refuse(grid, "there must be one on each side");
    if (grid.h % config.merge_size != 0 || grid.w % config.merge_size != 0) {
      refuse(grid, str_cat("height and width must be multiples of ", config.merge_size));
    }
    const int64_t patches = int64_t{grid.h} * grid.w;
    if (patches > kMaxGridPatches) {
      refuse(grid, str_cat("at most ", kMaxGridPatches, " of one image or frame"));
    }
    if (grid.t > kMaxPatches / patches) refuse(grid, str_cat("at most ", kMaxPatches));
    const int32_t side = config.position_side;
    if (side > 0 && !config.resamples && (grid.h != side || grid.w != side)) {
      refuse(grid, str_cat("this tower takes ", side, " x ", side));
    }
    const int32_t together = std::min(config.merge_grids, grid.t);
    if (grid.t % together != 0) {
      refuse(grid, str_cat("a clip must have a multiple of ", together, " frames"));
    }
    return grid.t / together * patches / (int64_t{config.merge_size} * config.merge_size);
  }

  std::unique_ptr<TowerRun> begin(const float* patches, const PatchGrid& grid,
                                  std::span<const TensorView> out) override {
    const int64_t count = rows(grid);
    HEADRACE_CHECK(out.size() == static_cast<size_t>(outputs()), out.size());
    for (const TensorView& view : out) {
      HEADRACE_CHECK(view.shape == Shape({count, model_.hidden}), view.rows(), " x ", view.cols());
    }
    return std::make_unique<VitRun>(model_, patches, grid, out);
  }

  size_t scratch_bytes(const PatchGrid& grid) const override {
    rows(grid);
    Carver sizes(nullptr);
    lay_out_vit(model_, grid, sizes);
    return sizes.offset();
  }

  size_t weight_bytes() const override { return model_.weights.bytes; }

 private:
  static int64_t tile_rows(const DeviceInfo& device) {
    return device.host_memory ? kHostTileRows : std::max<int64_t>(kHostTileRows, device.busy_rows);
  }

  VitModel model_;
};

}  // namespace

std::unique_ptr<VisionTower> make_vision_tower(Backend& backend, const ModelConfig& config,
                                               const VisionSources& sources, WeightReader& reader,
                                               DType storage) {
  HEADRACE_CHECK(config.vision.has_value(), config.model_type);
  return std::make_unique<VitTower>(backend, config, sources, reader, storage);
}

}  // namespace headrace
