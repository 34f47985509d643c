#include "cuda/kernels/linear_epilogue.cuh"
#include "cuda/kernels/quant/quant_task.cuh"

namespace headrace::cuda {
namespace {

constexpr int kMostTiles = 4;  // of features, of a block
constexpr int kMostThreads = kMostTiles * kQuantSlices * kWarp;
constexpr int kScaleBytes = kStageGroups * kQuantTile * 2, kZeroBytes = kStageGroups * kQuantTile;
constexpr int kSumPadding = 4;

template <class T>
struct FewTask {
  QuantInput<T> input;
  QuantWeightView weight;
  int units;
  int tiles;  // of features, of a block: 2 or kMostTiles
};

/// Shared memory of a stage: of each warp its weight, then of each slice its tokens.
template <int kBits, int kTokenTiles>
struct FewStage {
  static constexpr int kTokens = 8 * kTokenTiles;
  static constexpr int kCodes = stage_code_bytes(kBits);
  static constexpr int kWeight = kCodes + kScaleBytes + kZeroBytes;
  static constexpr int kInput = kTokens * kStageRowBytes;
  static constexpr int bytes(int tiles) { return kQuantSlices * (tiles * kWeight + kInput); }
  static constexpr int kStages = (96 << 10) / bytes(kMostTiles);
  static_assert(kStages >= 2);
};

/// A warp's place: 16 features, and a run of stages of k.
template <class T, int kBits, int kTokenTiles>
struct FewWarp {
  using Stage = FewStage<kBits, kTokenTiles>;

  const FewTask<T>& task;
  int slice, tile;      // of the block's
  const uint8_t* from;  // the tile's weight
  int begin, count;     // stages of k

  __device__ FewWarp(const FewTask<T>& t)
      : task(t), slice(warp_id() / t.tiles), tile(warp_id() % t.tiles) {
    from = task.weight.tile(int64_t{blockIdx.x} * task.tiles + tile);
    constexpr int kStagesOfUnit = kQuantUnit / kQuantStage;
    begin = static_cast<int>(slice_begin(task.units, slice)) * kStagesOfUnit;
    count = static_cast<int>(slice_begin(task.units, slice + 1)) * kStagesOfUnit - begin;
  }

  __device__ char* stage(int index) const {
    return shared_memory() + index % Stage::kStages * Stage::bytes(task.tiles);
  }
  __device__ char* weight_of(int index) const { return stage(index) + warp_id() * Stage::kWeight; }
  __device__ char* input_of(int index) const {
    return stage(index) + kQuantSlices * task.tiles * Stage::kWeight + slice * Stage::kInput;
  }

  __device__ void load_weight(int index) const {
    const int64_t at = begin + index;
    char* to = weight_of(index);
    HEADRACE_UNROLL
    for (int byte = lane_id() * kLaneVector; byte < Stage::kCodes; byte += kWarpVector) {
      copy_async_16(to + byte, from + at * Stage::kCodes + byte);
    }
    const QuantWeightView& weight = task.weight;
    const int groups = weight.stage_groups();
    const int64_t first = weight.groups_before(at) * kQuantTile;
    const int byte = lane_id() * kLaneVector;
    if (byte < groups * kQuantTile * 2) {
      copy_async_16(to + Stage::kCodes + byte, from + weight.scales_at + first * 2 + byte);
    }
    if (weight.zero_points && byte < groups * kQuantTile) {
      copy_async_16(to + Stage::kCodes + kScaleBytes + byte, from + weight.zeros_at + first + byte);
    }
  }

  /// By all warps of a slice. Tokens that aren't there stay as they are: nobody reads their sums.
  __device__ void load_input(int index) const {
    const int rows = static_cast<int>(task.input.rows);
    for (int i = tile * kWarp + lane_id(); i < rows * kStageChunks; i += task.tiles * kWarp) {
      const int row = i / kStageChunks, chunk = i % kStageChunks;
      task.input.copy_chunk(input_of(index) + stage_chunk_byte(row, chunk), row,
                            int64_t{begin + index} * kQuantStage + chunk * 8);
    }
  }

  /// The same for the first stages at once, through registers: their weights may still be under
  /// way.
  __device__ void load_first_input(int stages) const {
    constexpr int kAtOnce = 4;
    const int step = task.tiles * kWarp, chunks = stages * kStageChunks;
    const int all = static_cast<int>(task.input.rows) * chunks;
    for (int first = tile * kWarp + lane_id(); first < all; first += kAtOnce * step) {
      Vector<T> held[kAtOnce];
      HEADRACE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int c = first + i * step;
        const int64_t k0 = int64_t{begin} * kQuantStage + c % chunks * 8;
        if (c < all) held[i] = task.input.chunk(c / chunks, k0);
      }
      HEADRACE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int c = first + i * step, row = c / chunks, chunk = c % chunks;
        if (c >= all) continue;
        char* to = input_of(chunk / kStageChunks);
        store_vector(reinterpret_cast<T*>(to + stage_chunk_byte(row, chunk % kStageChunks)),
                     held[i]);
      }
    }
  }

  __device__ void multiply(int index, RowZeros<T, kBits>& zeros,
                           GroupSums<kTokenTiles>& sums) const {
    const char* weight = weight_of(index);
    const char* tokens = input_of(index);
    const int lane = lane_id(), g = lane / 4;
    const int k0 = (begin + index) % 2 * kQuantStage;  // in the unit
    constexpr int kVectors = kBits / 4;
    uint4 codes[kVectors];
    HEADRACE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      codes[v] = *reinterpret_cast<const uint4*>(weight + v * kWarpVector + lane * kLaneVector);
    }
    uint32_t words[kVectors * 4];
    __builtin_memcpy(words, codes, sizeof words);
    HEADRACE_UNROLL
    for (int pair = 0; pair < 2; ++pair) {  // of steps of 16 k
      const int k = k0 + 32 * pair, in_stage = pair >> (task.weight.group_bits - 5);
      if (task.weight.zero_points && task.weight.begins_group(k)) {
        const char* at = weight + Stage::kCodes + kScaleBytes + in_stage * kQuantTile;
        zeros.set(reinterpret_cast<const uint16_t*>(at)[g]);
      }
      uint32_t b[kTokenTiles][4];
      HEADRACE_UNROLL
      for (int t = 0; t < kTokenTiles; ++t) {
        load_matrices(b[t], tokens + stage_chunk_byte(8 * t + lane % 8, 4 * pair + lane / 8));
      }
      HEADRACE_UNROLL
      for (int step = 0; step < 2; ++step) {
        uint32_t a[4];
        codes_to_a<T, kBits>(words + (2 * pair + step) * (kBits / 4), zeros.low, zeros.high, a);
        HEADRACE_UNROLL
        for (int t = 0; t < kTokenTiles; ++t) {
          const uint32_t own[2] = {b[t][2 * step], b[t][2 * step + 1]};
          mma_16x8x16<T>(sums.products[t], a, own);
        }
      }
      if (task.weight.begins_group(k + 32)) {
        const char* at = weight + Stage::kCodes + in_stage * kQuantTile * 2;
        sums.add_group(scales_of(reinterpret_cast<const uint32_t*>(at)[g], task.weight.f16_scales));
      }
    }
  }

  /// To [slice][token][feature] in shared memory, `stride` floats apart.
  __device__ void put_sums(const GroupSums<kTokenTiles>& sums, float* to, int stride) const {
    const auto [g, q] = lane_place();
    float* own = to + slice * Stage::kTokens * stride + tile * kQuantTile;
    HEADRACE_UNROLL
    for (int i = 0; i < kTokenTiles * 4; ++i) {
      const int t = i / 4, c = i % 4;
      own[(8 * t + 2 * q + c % 2) * stride + g + c / 2 * 8] = sums.sums[t][c];
    }
  }
};

/// A block has 2 or 4 tiles of features and all tokens; its warps also share k out, so that narrow
/// weights keep a GPU busy. All that is on its way to shared memory lies in one ring of stages.
template <class T, class Out, int kBits, int kTokenTiles>
__global__ void __launch_bounds__(kMostThreads, 1)
    quant_linear_few_kernel(FewTask<T> task, LinearOutput<T, Out> out) {
  using Stage = FewStage<kBits, kTokenTiles>;
  constexpr int kStages = Stage::kStages;
  start_next();
  const FewWarp<T, kBits, kTokenTiles> warp(task);
  HEADRACE_UNROLL
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < warp.count) warp.load_weight(s);
    copy_async_commit();
  }
  wait_for_previous();
  if (warp.count > 0) warp.load_first_input(least(kStages - 1, warp.count));

  RowZeros<T, kBits> zeros(quant_zero(kBits));
  GroupSums<kTokenTiles> sums;
  const int rounds = divide_up(task.units, kQuantSlices) * (kQuantUnit / kQuantStage);
  HEADRACE_NO_UNROLL
  for (int round = 0; round < rounds; ++round) {
    copy_async_wait<kStages - 2>();
    __syncthreads();
    const int next = round + kStages - 1;
    if (next < warp.count) {
      warp.load_weight(next);
      warp.load_input(next);
    }
    copy_async_commit();
    if (round < warp.count) warp.multiply(round, zeros, sums);
  }
  copy_async_wait<0>();
  __syncthreads();

  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int features = task.tiles * kQuantTile, stride = features + kSumPadding;
  auto* totals = reinterpret_cast<float*>(shared_memory());
  warp.put_sums(sums, totals, stride);
  __syncthreads();
  for (int i = thread; i < Stage::kTokens * features; i += threads) {
    float* at = totals + i / features * stride + i % features;
    float total = 0.0f;
    HEADRACE_UNROLL
    for (int s = 0; s < kQuantSlices; ++s) total += at[s * Stage::kTokens * stride];
    *at = total;
  }
  __syncthreads();
  const int rows = static_cast<int>(task.input.rows);
  const int64_t first = int64_t{blockIdx.x} * features;
  if (task.tiles == kMostTiles) {
    write_sums<kMostTiles * kQuantTile>(totals, stride, rows, 0, first, out, thread, threads);
  } else {
    write_sums<kMostTiles / 2 * kQuantTile>(totals, stride, rows, 0, first, out, thread, threads);
  }
}

template <class T, class Out, int kBits, int kTokenTiles>
void run(const QuantLinearArgs& args, Stream stream) {
  const QuantLayout layout = layout_of(args);
  using Stage = FewStage<kBits, kTokenTiles>;
  const bool wide = layout.tiles() / kMostTiles >= int64_t{2} * args.linear.multiprocessors;
  const FewTask<T> task{.input = input_of<T>(args.linear),
                        .weight = view_of(layout, args.linear.weight),
                        .units = static_cast<int>(layout.units()),
                        .tiles = wide ? kMostTiles : kMostTiles / 2};
  launch("quant_linear_few", quant_linear_few_kernel<T, Out, kBits, kTokenTiles>,
         {.grid = {grid_size(layout.tiles() / task.tiles)},
          .threads = static_cast<unsigned>(task.tiles * kQuantSlices * kWarp),
          .shared_bytes = static_cast<size_t>(Stage::bytes(task.tiles) * Stage::kStages),
          .overlaps = true},
         stream, task, linear_output<T, Out>(args.linear));
}

}  // namespace

void quant_linear_few(const QuantLinearArgs& args, Stream stream) {
  const int64_t rows = args.linear.x.rows;
  HEADRACE_CHECK(rows <= kMostQuantFewRows && layout_of(args).units() <= 0x7fffff, rows);
  with_linear_types(args.linear, [&](auto element, auto result) {
    using T = decltype(element);
    using Out = decltype(result);
    with_bool(args.format.bits == 8, [&](auto wide) {
      constexpr int kBits = decltype(wide)::value ? 8 : 4;
      if (rows <= 8) return run<T, Out, kBits, 1>(args, stream);
      if (rows <= 16) return run<T, Out, kBits, 2>(args, stream);
      run<T, Out, kBits, 4>(args, stream);
    });
  });
}

}  // namespace headrace::cuda
