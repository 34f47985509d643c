#pragma once

// The scan of one slice by one block: everything that the draw needs of most of its tokens.

#include "cuda/device/overlap.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/kernels/sample/sample_edits.cuh"

namespace headrace::cuda {

inline constexpr int kScanWarps = kSampleThreads / kWarp;
/// Threads' maxima are put into that many groups, each from all over the slice.
inline constexpr int kScanGroups = 128;
inline constexpr int kGroupWarps = kScanGroups / kWarp;

struct ScanShared {
  SampleRowArgs row;
  float maxima[kSampleThreads];
  float groups[kScanGroups];
  float thresholds[kGroupWarps];
  float largest[kScanWarps];  ///< of a warp's groups, or of its own values
  bool bad[kScanWarps], some[kScanWarps];
  Amount amounts[2][kScanWarps];
  uint32_t listed;
  int32_t best_token;
};

/// The larger one; NaN if either is.
__device__ inline float larger_or_nan(float a, float b) {
#if defined(HEADRACE_CUDA_EMULATION)
  return is_nan(a) || is_nan(b) ? NAN : greatest(a, b);
#else
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
#endif
}

/// 2^x, of a relative error up to 2^-22.
__device__ inline float fast_exp2(float x) {
#if defined(HEADRACE_CUDA_EMULATION)
  return exp2f(x);
#else
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#endif
}

/// A thread's logits of the slice: 16 bytes each from kSliceQuads places.
struct SliceValues {
  static constexpr int kCount = 4 * kSliceQuads;
  float at[kCount];

  /// In the slice.
  __device__ static int32_t place(int i) {
    return 4 * (i / 4 * kSampleThreads + static_cast<int>(threadIdx.x)) + i % 4;
  }
  __device__ static int32_t token(int32_t first, int i) { return first + place(i); }

  /// -inf beyond the vocabulary.
  __device__ void load(const float* logits, int32_t first, int32_t vocab_size) {
    const bool aligned = (reinterpret_cast<uintptr_t>(logits) & 15u) == 0;
    if (aligned && first + kSliceSize <= vocab_size) {
      HEADRACE_UNROLL
      for (int i = 0; i < kCount; i += 4) {
        const float4 quad = *reinterpret_cast<const float4*>(logits + token(first, i));
        at[i] = quad.x;
        at[i + 1] = quad.y;
        at[i + 2] = quad.z;
        at[i + 3] = quad.w;
      }
      return;
    }
    HEADRACE_UNROLL
    for (int i = 0; i < kCount; i += 4) {
      const float* const from = logits + token(first, i);
      const int32_t left = vocab_size - token(first, i);
      HEADRACE_UNROLL
      for (int j = 0; j < 4; ++j) at[i + j] = kNever;
      if (left <= 0) continue;
      HEADRACE_UNROLL
      for (int j = 0; j < 4; ++j) {
        if (j < left) at[i + j] = from[j];
      }
    }
  }
  __device__ float largest_or_nan() const {
    float largest = at[0];
    HEADRACE_UNROLL
    for (int i = 1; i < kCount; ++i) largest = larger_or_nan(largest, at[i]);
    return largest;
  }
  __device__ void mask(const uint32_t* allowed, int32_t first, int32_t vocab_size) {
    HEADRACE_UNROLL
    for (int i = 0; i < kCount; i += 4) {
      const int32_t t = token(first, i);
      const uint32_t bits = t < vocab_size ? allowed[t / 32] >> (t % 32) : 0;
      HEADRACE_UNROLL
      for (int j = 0; j < 4; ++j) {
        if ((bits >> j & 1u) == 0) at[i + j] = kNever;
      }
    }
  }
  __device__ void drop_nan() {
    HEADRACE_UNROLL
    for (int i = 0; i < kCount; ++i) at[i] = is_nan(at[i]) ? kNever : at[i];
  }
};

/// The slice's largest value, and one that at least kSureTokens reach, if that many are above -inf:
/// in each of kGroupWarps times 32 groups, half of the maxima do. Called by the block, once all
/// maxima are written.
__device__ inline void find_threshold(ScanShared* shared) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kScanGroups) {
    float own = shared->maxima[thread];
    HEADRACE_UNROLL
    for (int i = kScanGroups; i < kSampleThreads; i += kScanGroups) {
      own = greatest(own, shared->maxima[thread + i]);
    }
    shared->groups[thread] = own;
    __syncwarp();
    const float* const others = shared->groups + warp_id() * kWarp;
    int place = 0;
    HEADRACE_UNROLL
    for (int i = 0; i < kWarp; ++i) {
      const float other = others[i];
      const int before = i < lane_id() ? 1 : 0;  // no branches
      place += (other > own ? 1 : 0) | ((other == own ? 1 : 0) & before);
    }
    if (place == 0) shared->largest[warp_id()] = own;
    static_assert(kSureTokens == kScanGroups / 2);
    if (place == kWarp / 2 - 1) shared->thresholds[warp_id()] = own;
  }
  __syncthreads();
}

__device__ inline uint32_t count_from(const SliceValues& values, float floor) {
  uint32_t count = 0;
  HEADRACE_UNROLL
  for (int i = 0; i < SliceValues::kCount; ++i) count += values.at[i] >= floor ? 1u : 0u;
  return count;
}

/// A threshold that kSureTokens to kSliceList values of the slice reach, where too many reach
/// `floor` (neighbours are alike). Ties may leave it too low. Called by the block.
__device__ inline float raise_threshold(const SliceValues& values, float floor, float largest,
                                        ScanShared* shared) {
  constexpr int kMostTries = 12;
  HEADRACE_NO_UNROLL
  for (int i = 0; i < kMostTries; ++i) {
    const float middle = floor + 0.5f * (largest - floor);
    if (!(middle > floor && middle < largest)) break;
    const uint32_t count = block_reduce(count_from(values, middle), Sum{},
                                        reinterpret_cast<uint32_t*>(shared->groups));
    if (count >= kSureTokens) floor = middle;
    if (count < kSureTokens) largest = middle;
    if (count >= kSureTokens && count <= kSliceList) break;
  }
  return floor;
}

/// Sum of exp((value - largest) / temperature) by this thread's warp, in a fixed order.
__device__ inline Amount warp_amount(const SliceValues& values, float largest, float temperature) {
  constexpr float kLog2E = 1.44269504088896340736f;
  const float scale = kLog2E / temperature;
  float sum = 0.0f;
  HEADRACE_UNROLL
  for (int i = 0; i < SliceValues::kCount; ++i) {
    sum += fast_exp2((values.at[i] - largest) * scale);
  }
  if (largest == INFINITY) {  // only what is there itself weighs anything
    sum = 0.0f;
    for (int i = 0; i < SliceValues::kCount; ++i) sum += values.at[i] == INFINITY ? 1.0f : 0.0f;
  }
  return static_cast<Amount>(warp_reduce(sum, Sum{}) * kAmountUnit);
}

/// The warp's part of the slice's amounts: for the draw, and for what is reported.
__device__ inline void add_amounts(const SliceValues& values, const SampleRowArgs& row,
                                   float largest, ScanShared* shared) {
  const bool drawn = needs_total(row), reported = reports_scanned(row);
  const bool same = drawn && reported_divisor(row) == row.temperature;
  Amount amount = 0;
  HEADRACE_NO_UNROLL  // no registers for two at once
      for (int k = 0; k < 2; ++k) {
    if (k == 0 ? drawn : reported && !same) {
      // Or ptxas would compute distances from it ahead of the loop, for all rows.
      uint32_t best = bits_of_float(largest);
      keep_in_register(best);
      const float divisor = k == 0 ? row.temperature : reported_divisor(row);
      amount = warp_amount(values, float_of_bits(best), divisor);
    }
    if (lane_id() == 0) shared->amounts[k][warp_id()] = amount;
  }
}

/// Lists what is at least `floor`, which is above -inf. Such values are in `logits` as they are
/// here. They are read from there again: which ones a lane lists isn't known before, and registers
/// have no numbers.
__device__ inline void list_tokens(const SliceValues& values, const float* logits, int32_t first,
                                   float floor, OrderCode* list, ScanShared* shared) {
  uint32_t left = 0;
  HEADRACE_UNROLL
  for (int i = 0; i < SliceValues::kCount; ++i) left |= values.at[i] >= floor ? 1u << i : 0u;
  if (left == 0) return;
  uint32_t place = atomicAdd(&shared->listed, static_cast<uint32_t>(__popc(left)));
  HEADRACE_NO_UNROLL
  for (; left != 0 && place < kSliceList; left &= left - 1) {
    const int32_t token = SliceValues::token(first, __ffs(static_cast<int>(left)) - 1);
    list[place++] = order_code(logits[token], token);
  }
}

/// Lists what is at least `floor`, or a part of it. Returns from where on it is complete. Called by
/// the block.
__device__ inline float list_slice(const SliceValues& values, const float* logits, int32_t first,
                                   float floor, float largest, OrderCode* list,
                                   ScanShared* shared) {
  constexpr float kLowest = -0x1.fffffep127f;  // above -inf
  if (!(largest > kNever)) return floor;
  floor = greatest(floor, kLowest);
  list_tokens(values, logits, first, floor, list, shared);
  __syncthreads();
  const bool fits = shared->listed <= kSliceList;
  __syncthreads();
  if (!fits) {
    if (threadIdx.x == 0) shared->listed = 0;
    floor = raise_threshold(values, floor, largest, shared);
    __syncthreads();
    list_tokens(values, logits, first, floor, list, shared);
  }
  return floor > kLowest ? floor : kNever;
}

/// The first token of the largest value.
__device__ inline void find_first(const SliceValues& values, int32_t first, float largest,
                                  ScanShared* shared) {
  int32_t token = kMaxVocabulary;
  HEADRACE_UNROLL
  for (int i = SliceValues::kCount - 1; i >= 0; --i) {
    if (values.at[i] == largest) token = SliceValues::token(first, i);
  }
  atomicMin(&shared->best_token, token);
}

/// Slice `i` of all rows'. Reads it once, or twice where there are edits, which it makes.
__device__ inline void scan_slice(const SampleWork& args, uint32_t i, ScanShared* shared) {
  const uint32_t r = i / static_cast<uint32_t>(args.table.slices);
  const auto first =
      static_cast<int32_t>(i - r * static_cast<uint32_t>(args.table.slices)) * kSliceSize;
  // All of it at once, and found again where it is needed: there are no registers to hold it.
  constexpr int kWords = sizeof(SampleRowArgs) / sizeof(uint32_t);
  static_assert(kWords * sizeof(uint32_t) == sizeof(SampleRowArgs) && kWords <= kSampleThreads);
  if (threadIdx.x < kWords) {
    reinterpret_cast<uint32_t*>(&shared->row)[threadIdx.x] =
        reinterpret_cast<const uint32_t*>(args.rows + r)[threadIdx.x];
  }
  __syncthreads();
  const SampleRowArgs& row = shared->row;
  if (row.logits_row < 0) return;
  const auto logits = [&] { return args.logits + row.logits_row * args.stride; };
  SliceValues values;
  values.load(logits(), first, args.vocab_size);
  float own = values.largest_or_nan();
  const uint32_t bad = __ballot_sync(kAllLanes, is_nan(own) || own == INFINITY);
  const uint32_t some = __ballot_sync(kAllLanes, own > kNever);
  if (lane_id() == 0) {
    shared->bad[warp_id()] = bad != 0;
    shared->some[warp_id()] = some != 0;
  }
  const bool edited = has_edits(row);
  if (edited) {
    __syncthreads();  // all have read what edits change
    RowEdits(args, row, logits(), first, least(first + kSliceSize, args.vocab_size)).apply();
    values.load(logits(), first, args.vocab_size);
  }
  if (row.allowed != nullptr) values.mask(row.allowed, first, args.vocab_size);
  if (edited || row.allowed != nullptr || is_nan(own)) {
    values.drop_nan();
    own = values.largest_or_nan();
  }
  const bool lists = draws(row) || reports_scanned(row);
  if (lists) {
    shared->maxima[threadIdx.x] = own;
  } else {
    const float largest = warp_reduce(own, Largest{});
    if (lane_id() == 0) shared->largest[warp_id()] = largest;
  }
  if (threadIdx.x == 0) {
    shared->listed = 0;
    shared->best_token = kMaxVocabulary;
  }
  __syncthreads();
  float floor = kNever, largest = kNever;
  if (lists) {
    find_threshold(shared);
    floor = shared->thresholds[0];
    for (int w = 0; w < kGroupWarps; ++w) {
      floor = least(floor, shared->thresholds[w]);
      largest = greatest(largest, shared->largest[w]);
    }
  } else {
    for (int w = 0; w < kScanWarps; ++w) largest = greatest(largest, shared->largest[w]);
  }
  if (own == largest && largest > kNever) find_first(values, first, largest, shared);
  if (lists) {
    if (largest > kNever) add_amounts(values, row, largest, shared);
    OrderCode* const list = args.table.lists + int64_t{i} * kSliceList;
    floor = list_slice(values, logits(), first, floor, largest, list, shared);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  SliceFound out{.floor = floor, .listed = shared->listed};
  if (largest > kNever) out.best = order_code(largest, shared->best_token);
  for (int w = 0; w < kScanWarps; ++w) {
    if (lists && largest > kNever) {
      out.amount += shared->amounts[0][w];
      out.reported += shared->amounts[1][w];
    }
    out.bad = out.bad || shared->bad[w];
    out.some = out.some || shared->some[w];
  }
  args.table.found[i] = out;
}

}  // namespace headrace::cuda
