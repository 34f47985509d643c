#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/check.h"
#include "cuda/host/trials/kernel_trials.h"
#include "cuda/host/trials/trial.h"

namespace headrace::cuda {

namespace {

constexpr int64_t kFeatures = 80, kInner = 256, kRows = 24;
constexpr WeightLayout kMatrix{kFeatures, kInner, false};
/// Pairs of each expert; they take rows kStep apart.
constexpr std::array<int32_t, 3> kPairs = {10, 0, 14};
constexpr int32_t kNumPairs = 24, kStep = 5;

struct ExpertCase {
  const char* name;
  DType dtype;
  QuantFormat quant;
  int32_t most_tile_rows;
};

constexpr ExpertCase kCases[] = {
    {"bfloat16", DType::kBF16, {}, 128},
    {"float16", DType::kF16, {}, 128},
    {"int4", DType::kBF16, {.bits = 4, .group_size = 128, .activations = Activations::kWhole}, 64},
    {"int8",
     DType::kF16,
     {.bits = 8, .group_size = 128, .f16_scales = true, .activations = Activations::kWhole},
     64}};
constexpr ExpertCase kRoundedCases[] = {
    {"int8 with int8 rows",
     DType::kBF16,
     {.bits = 8, .group_size = 128, .activations = Activations::kInt8Rows},
     64},
    {"FP8",
     DType::kBF16,
     {.bits = 8, .group_size = 128, .activations = Activations::kFloat8Rows},
     64},
    {"FP8 in groups",
     DType::kF16,
     {.bits = 8, .group_size = 128, .activations = Activations::kFloat8Groups},
     64}};
constexpr std::array<int32_t, 4> kTileRows = {8, 16, 64, 128};
constexpr size_t kMostTiles = 8;

constexpr size_t kMostExpertBytes = 2 * static_cast<size_t>(kMatrix.elements());
constexpr size_t kSlotBytes = size_t{2} * kRows * kFeatures;
/// Codes of rows and their scales.
constexpr size_t kRoundedBytes = kRows * kInner + 4 * 32 * (kInner / kQuantUnit);
static_assert(kRows == kNumPairs && kRows <= 32);

size_t expert_bytes(const ExpertCase& one) {
  if (one.quant.bits == 0) return kMostExpertBytes;
  return static_cast<size_t>(QuantLayout{kMatrix, one.quant}.bytes());
}

/// Of one case after the other. Slots of results: each expert with all rows, then pairs in tiles of
/// each size.
class ExpertTrial {
 public:
  ExpertTrial(CudaContext& context, TrialOp<GroupedLinearArgs> op)
      : op_(op),
        weights_(inputs_.take(kPairs.size() * kMostExpertBytes)),
        x_(inputs_.take(2 * kRows * kInner)),
        pair_rows_(inputs_.take(kNumPairs * sizeof(int32_t))),
        tiles_(inputs_.take(kTileRows.size() * kMostTiles * sizeof(ExpertTile))),
        out_(outputs_.take((kPairs.size() + kTileRows.size()) * kSlotBytes)),
        rounded_(outputs_.take(kRoundedBytes)),
        trial_(context, inputs_.bytes(), outputs_.bytes()) {}

  std::string run(std::span<const ExpertCase> cases) {
    for (const ExpertCase& one : cases) {
      make_inputs(one);
      for (const char* how : kTrialRuns) {
        trial_.clear_outputs();
        for (size_t e = 0; e < kPairs.size(); ++e) launch_alone(one, e);
        trial_.run(&one - cases.data(), [&] {
          for (size_t i = 0; i < kTileRows.size(); ++i) launch(one, i);
        });
        const int32_t rows = first_difference(one);
        if (rows > 0) return str_cat("in tiles of ", rows, " rows they differ in ", one.name, how);
      }
    }
    return "";
  }

 private:
  void make_inputs(const ExpertCase& one) {
    std::mt19937 random(5);
    std::byte* const to = trial_.staging();
    auto* const numbers = reinterpret_cast<uint16_t*>(to);
    std::generate_n(numbers, pair_rows_ / 2, [&] { return random_half(random); });
    auto* const rows = reinterpret_cast<int32_t*>(to + pair_rows_);
    for (int32_t i = 0; i < kNumPairs; ++i) rows[i] = i * kStep % static_cast<int32_t>(kRows);
    auto* const tiles = reinterpret_cast<ExpertTile*>(to + tiles_);
    std::fill_n(tiles, kTileRows.size() * kMostTiles, ExpertTile{});
    for (size_t i = 0; i < kTileRows.size(); ++i) list_tiles(kTileRows[i], tiles + i * kMostTiles);
    for (size_t e = 0; e < kPairs.size() && one.quant.bits == 8; ++e) {
      make_codes({kMatrix, one.quant}, random, to + weights_ + e * expert_bytes(one));
    }
    trial_.upload();
  }

  /// Any byte is a code of int8, but of FP8 those with all of the exponent's and the mantissa's
  /// bits. Scales of 2 bytes are numbers from 1 to 2 already; those of 4 are so large that float16
  /// has what comes out.
  static void make_codes(const QuantLayout& layout, std::mt19937& random, std::byte* weight) {
    const bool rounds = rounds_rows(layout.format);
    for (int64_t tile = 0; tile < layout.tiles(); ++tile, weight += layout.tile_bytes()) {
      std::generate_n(weight, layout.scales_at(), [&] {
        const auto code = static_cast<uint8_t>(random());
        return std::byte{has_float8(layout.format) && (code & 0x7f) == 0x7f ? uint8_t{0} : code};
      });
      for (int64_t i = 0; rounds && i < layout.groups() * kQuantTile; ++i) {
        const float scale = 0x1p-6f + static_cast<float>(random() & 0xff) * 0x1p-14f;
        std::memcpy(weight + layout.scales_at() + 4 * i, &scale, sizeof scale);
      }
    }
  }

  static void list_tiles(int32_t tile_rows, ExpertTile* to) {
    int32_t first = 0;
    for (size_t e = 0; e < kPairs.size(); ++e) {
      for (int32_t done = 0; done < kPairs[e]; done += tile_rows) {
        *to++ = {static_cast<int32_t>(e), first + done, std::min(tile_rows, kPairs[e] - done)};
      }
      first += kPairs[e];
    }
  }

  Matrix slot(size_t number) const {
    return {trial_.outputs() + out_ + number * kSlotBytes, kRows, kFeatures, kFeatures};
  }

  void* rounded(const ExpertCase& one) const {
    return rounds_rows(one.quant) ? trial_.outputs() + rounded_ : nullptr;
  }

  void launch_alone(const ExpertCase& one, size_t expert) {
    const CudaContext& context = trial_.context();
    const LinearArgs args{.dtype = one.dtype,
                          .x = {trial_.inputs() + x_, kRows, kInner, kInner},
                          .weight = trial_.inputs() + weights_ + expert * expert_bytes(one),
                          .layout = kMatrix,
                          .out_dtype = one.dtype,
                          .out = slot(expert),
                          .multiprocessors = context.properties().multiprocessors};
    if (one.quant.bits == 0) return linear(args, context.stream());
    quant_linear({.linear = args, .format = one.quant, .rounded = rounded(one)}, context.stream());
  }

  void launch(const ExpertCase& one, size_t size) {
    if (kTileRows[size] > one.most_tile_rows) return;
    const CudaContext& context = trial_.context();
    std::byte* const in = trial_.inputs();
    op_({.dtype = one.dtype,
         .x = {in + x_, kRows, kInner, kInner},
         .pair_rows = reinterpret_cast<const int32_t*>(in + pair_rows_),
         .weight = in + weights_,
         .layout = kMatrix,
         .quant = one.quant,
         .rounded = rounded(one),
         .out = slot(kPairs.size() + size),
         .tiles = reinterpret_cast<const ExpertTile*>(in + tiles_) + size * kMostTiles,
         .num_tiles = kMostTiles,
         .tile_rows = kTileRows[size],
         .multiprocessors = context.properties().multiprocessors},
        context.stream());
  }

  /// Rows of the first kind of tiles that has other bits than the experts alone; 0 = none.
  int32_t first_difference(const ExpertCase& one) {
    constexpr size_t kRowBytes = size_t{2} * kFeatures;
    trial_.download();
    const std::byte* const found = trial_.staging() + out_;
    for (size_t size = 0; size < kTileRows.size(); ++size) {
      if (kTileRows[size] > one.most_tile_rows) continue;
      const std::byte* pair = found + (kPairs.size() + size) * kSlotBytes;
      int32_t number = 0;
      for (size_t e = 0; e < kPairs.size(); ++e) {
        for (int32_t i = 0; i < kPairs[e]; ++i, ++number, pair += kRowBytes) {
          const auto row = static_cast<size_t>(number * kStep % static_cast<int32_t>(kRows));
          const std::byte* const alone = found + e * kSlotBytes + row * kRowBytes;
          if (std::memcmp(pair, alone, kRowBytes) != 0) return kTileRows[size];
        }
      }
    }
    return 0;
  }

  TrialOp<GroupedLinearArgs> op_;
  TrialPlaces inputs_, outputs_;
  size_t weights_, x_, pair_rows_, tiles_;  // of inputs; those ahead of pair_rows_ are numbers
  size_t out_, rounded_;                    // of outputs
  Trial trial_;
};

}  // namespace

std::string try_experts(CudaContext& context, TrialOp<GroupedLinearArgs> op) {
  return guarded(context, [&] { return ExpertTrial(context, op).run(kCases); });
}

std::string try_rounded_experts(CudaContext& context, TrialOp<GroupedLinearArgs> op) {
  return guarded(context, [&] { return ExpertTrial(context, op).run(kRoundedCases); });
}

}  // namespace headrace::cuda
