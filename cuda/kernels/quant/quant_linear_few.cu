#include "cuda/device/named_barrier.cuh"
#include "cuda/kernels/linear/linear_epilogue.cuh"
#include "cuda/kernels/quant/quant_task.cuh"

namespace headrace::cuda {
namespace {

constexpr int kMostTiles = 4;  // of features, of a block
[[maybe_unused]] constexpr int kMostThreads = kMostTiles * kQuantSlices * kWarp;
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

/// A stage of the ring, which moves on. What is added to it to find a lane's place in the stage
/// stays in registers.
class RingPlace {
 public:
  __device__ RingPlace(int stage_bytes, int stages)
      : begin_(shared_begin()),
        at_(begin_),
        end_(begin_ + static_cast<uint32_t>(stage_bytes * stages)),
        stage_bytes_(static_cast<uint32_t>(stage_bytes)) {
    keep_in_register(begin_);
    keep_in_register(end_);
    keep_in_register(stage_bytes_);
  }
  __device__ char* operator+(int offset) const {
    return shared_at(at_ + static_cast<uint32_t>(offset));
  }
  __device__ void advance() {
    at_ += stage_bytes_;
    if (at_ == end_) at_ = begin_;
    keep_in_register(at_);
  }
  __device__ int stage_bytes() const { return static_cast<int>(stage_bytes_); }

 private:
  uint32_t begin_, at_, end_, stage_bytes_;
};

/// What a lane copies to the ring: 16 bytes of its warp's codes at a time, scales and zeros, and of
/// its slice's rows one chunk of every row_step()-th. Addresses move from stage to stage.
template <class T, int kBits, int kTokenTiles>
class FewCopies {
 public:
  using Stage = FewStage<kBits, kTokenTiles>;

  __device__ FewCopies(const FewTask<T>& task, int slice, int tile, int begin, int count)
      : task_(task),
        count_(count),
        k_(int64_t{begin} * kQuantStage),
        row_step_(task.tiles * kWarp / kStageChunks),
        write_(Stage::bytes(task.tiles), Stage::kStages) {
    const QuantWeightView& weight = task.weight;
    const uint8_t* from = weight.tile(int64_t{blockIdx.x} * task.tiles + tile);
    const int lane = lane_id() * kLaneVector, thread = tile * kWarp + lane_id();
    const int64_t group = weight.groups_before(begin) * kQuantTile;
    codes_ = from + int64_t{begin} * Stage::kCodes + lane;
    scales_ = from + weight.scales_at + group * 2 + lane;
    zeros_ = from + weight.zeros_at + group + lane;
    weight_at_ = warp_id() * Stage::kWeight + lane;
    // A group of 128 comes with its unit's first half.
    group_bytes_[0] = weight.stage_groups() * kQuantTile;
    group_bytes_[1] = weight.group_bits == 7 ? 0 : group_bytes_[0];
    HEADRACE_UNROLL
    for (int half = 0; half < 2; ++half) {
      copies_scales_[half] = lane < 2 * group_bytes_[half];
      copies_zeros_[half] = weight.zero_points && lane < group_bytes_[half];
      keep_in_register(group_bytes_[half]);
    }

    row_ = thread / kStageChunks;
    chunk_ = thread % kStageChunks;
    own_rows_ = divide_up(rows() - row_, row_step_);
    input_at_ = kQuantSlices * task.tiles * Stage::kWeight + slice * Stage::kInput +
                stage_chunk_byte(row_, chunk_);
    const QuantInput<T>& input = task.input;
    x_ = input.x + row_ * input.stride + k_ + chunk_ * 8;
    const int64_t whole = input.vectors ? input.k / kQuantStage - begin : 0;
    whole_ = static_cast<int>(greatest<int64_t>(least<int64_t>(whole, count), 0));
    for (int* own : {&weight_at_, &input_at_, &row_step_, &own_rows_}) keep_in_register(*own);
  }

  /// Stages whose rows have no edges: no k beyond the last, all chunks aligned.
  __device__ int whole() const { return whole_; }

  /// The next stage's weight. kHalf: which of its unit's two it is.
  template <int kHalf>
  __device__ void copy_weight() {
    char* to = write_ + weight_at_;
    HEADRACE_UNROLL
    for (int v = 0; v < kBits / 4; ++v) {
      copy_async_16(to + v * kWarpVector, codes_ + v * kWarpVector + kHalf * Stage::kCodes);
    }
    if (copies_scales_[kHalf]) copy_async_16(to + Stage::kCodes, scales_);
    if (copies_zeros_[kHalf]) copy_async_16(to + Stage::kCodes + kScaleBytes, zeros_);
    scales_ += 2 * group_bytes_[kHalf];
    zeros_ += group_bytes_[kHalf];
    if (kHalf == 1) codes_ += 2 * Stage::kCodes;
  }

  /// The next stage's rows, if it is a whole one. Tokens that aren't there stay as they are:
  /// nobody reads their sums.
  __device__ void copy_whole_input() {
    char* to = write_ + input_at_;
    const T* from = x_;
    HEADRACE_UNROLL
    for (int r = 0; r < kPasses; ++r) {
      if (r < own_rows_) copy_async_16(to + r * row_step_ * kStageRowBytes, from);
      if (r + 1 < kPasses) from += row_step_ * task_.input.stride;
    }
  }
  __device__ void copy_edge_input(int stage) {
    char* to = write_ + input_at_;
    HEADRACE_NO_UNROLL
    for (int r = 0; r < own_rows_; ++r) {
      const int row = r * row_step_;
      task_.input.copy_chunk(to + row * kStageRowBytes, row_ + row, k_of(stage));
    }
  }

  /// All of the next stage, if there is one. kWhole: there is, and a whole one.
  template <int kHalf, bool kWhole>
  __device__ void copy(int stage) {
    if (!kWhole && stage >= count_) return;
    copy_weight<kHalf>();
    if (kWhole || stage < whole_) {
      copy_whole_input();
    } else {
      copy_edge_input(stage);
    }
    x_ += kQuantStage;
    next();
  }
  __device__ void next() { write_.advance(); }

  /// Rows of the first stages at once, through registers: their weights may still be under way.
  __device__ void put_first_input() {
    constexpr int kFirst = Stage::kStages - 1;
    HEADRACE_NO_UNROLL
    for (int r = 0; r < own_rows_; ++r) {
      const int row = r * row_step_;
      char* to = shared_memory() + input_at_ + row * kStageRowBytes;
      Vector<T> held[kFirst];
      HEADRACE_UNROLL
      for (int s = 0; s < kFirst; ++s) {
        if (s < count_) held[s] = task_.input.chunk(row_ + row, k_of(s));
      }
      HEADRACE_UNROLL
      for (int s = 0; s < kFirst; ++s) {
        if (s < count_) store_vector(reinterpret_cast<T*>(to + s * write_.stage_bytes()), held[s]);
      }
    }
    x_ += kFirst * kQuantStage;
  }

 private:
  /// A block of two tiles copies eight rows at a time.
  static constexpr int kPasses = kTokenTiles;

  __device__ int rows() const { return static_cast<int>(task_.input.rows); }
  __device__ int64_t k_of(int stage) const {
    return k_ + int64_t{stage} * kQuantStage + chunk_ * 8;
  }

  const FewTask<T>& task_;
  int count_, whole_;  // stages
  int64_t k_;
  const uint8_t *codes_, *scales_, *zeros_;
  bool copies_scales_[2], copies_zeros_[2];
  const T* x_;
  int row_, chunk_, row_step_, own_rows_;
  int weight_at_, group_bytes_[2], input_at_;
  RingPlace write_;
};

/// A warp's products: 16 features by all tokens.
template <class T, int kBits, int kTokenTiles>
class FewProducts {
 public:
  using Stage = FewStage<kBits, kTokenTiles>;

  __device__ FewProducts(const FewTask<T>& task, int slice)
      : weight_(task.weight),
        read_(Stage::bytes(task.tiles), Stage::kStages),
        codes_at_(warp_id() * Stage::kWeight + lane_id() * kLaneVector),
        scales_at_(warp_id() * Stage::kWeight + Stage::kCodes + lane_id() / 4 * 4),
        zeros_at_(warp_id() * Stage::kWeight + Stage::kCodes + kScaleBytes + lane_id() / 4 * 2),
        tokens_at_(kQuantSlices * task.tiles * Stage::kWeight + slice * Stage::kInput +
                   stage_chunk_byte(lane_id() % 8, lane_id() / 8)),
        zeros_(quant_zero(kBits)) {
    for (int* own : {&codes_at_, &scales_at_, &zeros_at_, &tokens_at_}) keep_in_register(*own);
  }

  /// Adds the next stage, the first or the second of its unit.
  template <int kHalf>
  __device__ void add() {
    constexpr int kVectors = kBits / 4;
    uint4 codes[kVectors];
    HEADRACE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      codes[v] = *reinterpret_cast<const uint4*>(read_ + (codes_at_ + v * kWarpVector));
    }
    uint32_t words[kVectors * 4];
    __builtin_memcpy(words, codes, sizeof words);
    const int bits = weight_.group_bits;
    add_pair(0, words, kHalf == 0 || bits < 7, bits == 5);
    add_pair(1, words + kVectors * 2, bits == 5, kHalf == 1 || bits < 7);
    read_.advance();
  }

  /// To [slice][token][feature] in shared memory, `stride` floats apart.
  __device__ void put_sums(int slice, int tile, float* to, int stride) const {
    const auto [g, q] = lane_place();
    float* own = to + slice * Stage::kTokens * stride + tile * kQuantTile;
    HEADRACE_UNROLL
    for (int i = 0; i < kTokenTiles * 4; ++i) {
      const int t = i / 4, c = i % 4;
      own[(8 * t + 2 * q + c % 2) * stride + g + c / 2 * 8] = sums_.sums[t][c];
    }
  }

 private:
  /// Two steps of 16 k, which begin and end groups or don't.
  __device__ void add_pair(int pair, const uint32_t* words, bool begins, bool ends) {
    if (begins) {
      const int group = pair * kQuantTile;
      scales_ = *reinterpret_cast<const uint32_t*>(read_ + (scales_at_ + group * 2));
      if (weight_.zero_points) {
        zeros_.set(*reinterpret_cast<const uint16_t*>(read_ + (zeros_at_ + group)));
      }
    }
    uint32_t b[kTokenTiles][4];
    HEADRACE_UNROLL
    for (int t = 0; t < kTokenTiles; ++t) {  // chunk 4 * pair + lane / 8
      load_matrices(b[t], read_ + ((tokens_at_ ^ (64 * pair)) + 8 * t * kStageRowBytes));
    }
    HEADRACE_UNROLL
    for (int step = 0; step < 2; ++step) {
      uint32_t a[4];
      codes_to_a<T, kBits>(words + step * (kBits / 4), zeros_.low, zeros_.high, a);
      HEADRACE_UNROLL
      for (int t = 0; t < kTokenTiles; ++t) {
        const uint32_t own[2] = {b[t][2 * step], b[t][2 * step + 1]};
        mma_16x8x16<T>(sums_.products[t], a, own);
      }
    }
    if (ends) sums_.add_group(scales_of(scales_, weight_.f16_scales));
  }

  const QuantWeightView& weight_;
  RingPlace read_;
  int codes_at_, scales_at_, zeros_at_, tokens_at_;
  uint32_t scales_ = 0;  // of the group under way
  RowZeros<T, kBits> zeros_;
  GroupSums<kTokenTiles> sums_;
};

/// Adds up what lies in shared memory as [slice][token][feature], `stride` floats apart, and writes
/// it.
template <int kTokens, class T, class Out>
__device__ void write_slices(const FewTask<T>& task, int stride, const LinearOutput<T, Out>& out) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int features = task.tiles * kQuantTile, rows = static_cast<int>(task.input.rows);
  auto* totals = reinterpret_cast<float*>(shared_memory());
  for (int i = thread; i < kTokens * features; i += threads) {
    float* at = totals + i / features * stride + i % features;
    float total = 0.0f;
    HEADRACE_UNROLL
    for (int s = 0; s < kQuantSlices; ++s) total += at[s * kTokens * stride];
    *at = total;
  }
  __syncthreads();
  const int64_t first = int64_t{blockIdx.x} * features;
  if (task.tiles == kMostTiles) {
    write_sums<kMostTiles * kQuantTile>(totals, stride, rows, 0, first, out, thread, threads);
  } else {
    write_sums<kMostTiles / 2 * kQuantTile>(totals, stride, rows, 0, first, out, thread, threads);
  }
}

/// A block has 2 or 4 tiles of features and all tokens; its warps also share k out, so that narrow
/// weights keep a GPU busy. All that is on its way to shared memory lies in one ring of stages; the
/// warps of a slice, which share its rows, wait for each other alone.
template <class T, class Out, int kBits, int kTokenTiles>
__global__ void __launch_bounds__(kMostThreads, 1)
    quant_linear_few_kernel(FewTask<T> task, LinearOutput<T, Out> out) {
  using Stage = FewStage<kBits, kTokenTiles>;
  constexpr int kAhead = Stage::kStages - 1;
  start_next();
  const int slice = warp_id() / task.tiles, tile = warp_id() % task.tiles;
  constexpr int kStagesOfUnit = kQuantUnit / kQuantStage;
  const int begin = static_cast<int>(slice_begin(task.units, slice)) * kStagesOfUnit;
  const int end = static_cast<int>(slice_begin(task.units, slice + 1)) * kStagesOfUnit;
  const int count = end - begin;
  FewCopies<T, kBits, kTokenTiles> copies(task, slice, tile, begin, count);
  HEADRACE_UNROLL
  for (int s = 0; s < kAhead; ++s) {
    if (s < count) {
      if (s % 2 == 0) copies.template copy_weight<0>();
      if (s % 2 == 1) copies.template copy_weight<1>();
      copies.next();
    }
    copy_async_commit();
  }
  wait_for_previous();
  copies.put_first_input();

  FewProducts<T, kBits, kTokenTiles> products(task, slice);
  const int slice_threads = task.tiles * kWarp;
  const auto add_unit = [&](auto whole, int stage) {
    constexpr bool kWhole = decltype(whole)::value;
    copy_async_wait<kAhead - 1>();
    named_barrier(1 + slice, slice_threads);
    copies.template copy<kAhead % 2, kWhole>(stage + kAhead);
    copy_async_commit();
    products.template add<0>();

    copy_async_wait<kAhead - 1>();
    named_barrier(1 + slice, slice_threads);
    copies.template copy<1 - kAhead % 2, kWhole>(stage + 1 + kAhead);
    copy_async_commit();
    products.template add<1>();
  };
  int stage = 0;
  HEADRACE_NO_UNROLL
  for (; stage + 1 + kAhead < copies.whole(); stage += kStagesOfUnit) {
    add_unit(std::true_type{}, stage);
  }
  HEADRACE_NO_UNROLL
  for (; stage < count; stage += kStagesOfUnit) add_unit(std::false_type{}, stage);
  copy_async_wait<0>();
  __syncthreads();

  const int stride = task.tiles * kQuantTile + kSumPadding;
  products.put_sums(slice, tile, reinterpret_cast<float*>(shared_memory()), stride);
  __syncthreads();
  write_slices<Stage::kTokens>(task, stride, out);
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
