#include "fakes/fake_media.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace headrace::testing {

namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x7f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t hash_floats(uint64_t hash, std::span<const float> values) {
  for (const float value : values) hash = mix(hash, std::bit_cast<uint32_t>(value));
  return hash;
}

int32_t to_token(uint64_t hash) { return static_cast<int32_t>(hash >> 34); }

float to_number(uint64_t hash) {
  return static_cast<float>(hash >> 40) / static_cast<float>(1 << 23) - 1.0f;
}

/// The values of the patches that make row `row` of a grid: those of its grids over time lie
/// `area` patches apart.
std::vector<float> values_of_row(const float* patches, int64_t row, int64_t patch_values,
                                 int64_t grids, int64_t area) {
  constexpr int64_t kBlock = FakeTower::kMerge * FakeTower::kMerge;
  std::vector<float> values;
  for (int64_t grid = 0; grid < grids; ++grid) {
    const float* const first = patches + (grid * area + row * kBlock) * patch_values;
    values.insert(values.end(), first, first + kBlock * patch_values);
  }
  return values;
}

class FakeRun final : public TowerRun {
 public:
  FakeRun(const FakeTower& tower, const float* patches, const PatchGrid& grid,
          std::span<const TensorView> out, std::shared_ptr<FakeTowerControl> control)
      : tower_(tower),
        grid_(grid),
        patches_(patches, patches + int64_t{grid.t} * grid.h * grid.w * tower.patch_values()),
        out_(out.begin(), out.end()),
        pieces_(control->pieces_of_run),
        control_(std::move(control)) {
    ++control_->begun;
    ++control_->alive;
  }
  ~FakeRun() override { --control_->alive; }

  int32_t num_pieces() const override { return pieces_; }

  bool advance() override {
    ++control_->pieces;
    control_->held.wait(true);
    if (control_->failures > 0) {
      --control_->failures;
      throw Error(ErrorCode::kOutOfMemory, "injected failure of a tower.");
    }
    HEADRACE_CHECK(done_ < pieces_, done_);
    if (++done_ < pieces_) return false;
    write();
    ++control_->finished;
    return true;
  }

 private:
  void write() {
    const int64_t area = int64_t{grid_.h} * grid_.w, rows = tower_.rows(grid_);
    const int64_t in_group = area / (FakeTower::kMerge * FakeTower::kMerge);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t first = row / in_group * tower_.group();
      const int64_t grids = std::min<int64_t>(tower_.group(), grid_.t - first);
      const auto values = values_of_row(patches_.data() + first * area * tower_.patch_values(),
                                        row % in_group, tower_.patch_values(), grids, area);
      for (size_t i = 0; i < out_.size(); ++i) {
        const std::vector<float> made = tower_.row(values, static_cast<int32_t>(i));
        std::ranges::copy(made, out_[i].row<float>(row));
      }
    }
  }

  const FakeTower& tower_;
  const PatchGrid grid_;
  const std::vector<float> patches_;
  const std::vector<TensorView> out_;
  const int32_t pieces_;
  const std::shared_ptr<FakeTowerControl> control_;
  int32_t done_ = 0;
};

}  // namespace

int64_t FakeTower::rows(const PatchGrid& grid) const {
  if (grid.t < 1 || grid.h < 1 || grid.w < 1 || grid.h > kMostSide || grid.w > kMostSide ||
      grid.h % kMerge != 0 || grid.w % kMerge != 0) {
    throw_error(ErrorCode::kInvalidArgument, "a grid of ", grid.t, " x ", grid.h, " x ", grid.w,
                " patches can't be encoded.");
  }
  const int64_t groups = (grid.t + group_ - 1) / group_;
  return groups * (grid.h / kMerge) * (grid.w / kMerge);
}

std::unique_ptr<TowerRun> FakeTower::begin(const float* patches, const PatchGrid& grid,
                                           std::span<const TensorView> out) {
  HEADRACE_CHECK(std::cmp_equal(out.size(), outputs_), out.size());
  for (const TensorView& tensor : out) HEADRACE_CHECK(tensor.rows() == rows(grid), tensor.rows());
  return std::make_unique<FakeRun>(*this, patches, grid, out, control_);
}

size_t FakeTower::scratch_bytes(const PatchGrid& grid) const {
  return static_cast<size_t>(grid.t) * static_cast<size_t>(grid.h) * static_cast<size_t>(grid.w);
}

std::vector<float> FakeTower::row(std::span<const float> values, int32_t output) const {
  const uint64_t hash = hash_floats(static_cast<uint64_t>(output), values);
  std::vector<float> out;
  for (int32_t i = 0; i < hidden_; ++i)
    out.push_back(to_number(mix(hash, static_cast<uint64_t>(i))));
  return out;
}

int32_t given_token(std::span<const float> embedding, std::span<const std::vector<float>> added) {
  uint64_t hash = hash_floats(1, embedding);
  for (const std::vector<float>& more : added) hash = hash_floats(mix(hash, 2), more);
  return to_token(hash);
}

int32_t placed_token(int32_t token, int32_t position, std::array<int32_t, 3> axes) {
  if (axes == std::array{position, position, position}) return token;
  uint64_t hash = static_cast<uint64_t>(token);
  for (const int32_t axis : axes) hash = mix(hash, static_cast<uint64_t>(axis));
  return to_token(hash);
}

PixelInput fake_pixels(uint64_t seed, int64_t frames, int64_t height, int64_t width) {
  std::vector<uint8_t> data(static_cast<size_t>(3 * frames * height * width));
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(mix(seed, i));
  PixelInput out;
  out.data = std::make_shared<const std::vector<uint8_t>>(std::move(data));
  out.layout = {frames, height, width, FakeTower::kPatch, FakeTower::kMerge, FakeTower::kTemporal};
  for (int i = 0; i < 768; ++i) out.table.push_back(static_cast<float>(i % 256) / 128.0f - 1.0f);
  return out;
}

EmbeddingInput fake_embeddings(uint64_t seed, int32_t rows, int32_t added, int32_t hidden_size) {
  std::vector<float> values(static_cast<size_t>(rows) * static_cast<size_t>(1 + added) *
                            static_cast<size_t>(hidden_size));
  for (size_t i = 0; i < values.size(); ++i) values[i] = to_number(mix(seed, i));
  return {std::make_shared<const std::vector<float>>(std::move(values)), rows, added};
}

std::vector<std::vector<std::vector<float>>> fake_rows(const MediaInput& item,
                                                       const FakeTower& tower,
                                                       int32_t hidden_size) {
  std::vector<std::vector<std::vector<float>>> out;
  if (item.embeddings.values != nullptr) {
    const float* next = item.embeddings.values->data();
    for (int32_t i = 0; i < 1 + item.embeddings.added; ++i) {
      auto& tensor = out.emplace_back();
      for (int32_t row = 0; row < item.embeddings.rows; ++row, next += hidden_size) {
        tensor.emplace_back(next, next + hidden_size);
      }
    }
    return out;
  }
  const PatchLayout& layout = item.pixels.layout;
  std::vector<float> patches(patch_values(layout));
  normalize_patches(item.pixels.data->data(), layout, item.pixels.table, patches.data());
  const int64_t grids =
      (layout.frames + layout.temporal_patch_size - 1) / layout.temporal_patch_size;
  const int64_t area = (layout.height / layout.patch_size) * (layout.width / layout.patch_size);
  const int64_t in_group = area / (FakeTower::kMerge * FakeTower::kMerge);
  for (int32_t i = 0; i < tower.outputs(); ++i) {
    auto& tensor = out.emplace_back();
    for (int64_t first = 0; first < grids; first += tower.group()) {
      for (int64_t row = 0; row < in_group; ++row) {
        const auto values = values_of_row(patches.data() + first * area * tower.patch_values(), row,
                                          tower.patch_values(),
                                          std::min<int64_t>(tower.group(), grids - first), area);
        tensor.push_back(tower.row(values, i));
      }
    }
  }
  return out;
}

}  // namespace headrace::testing
