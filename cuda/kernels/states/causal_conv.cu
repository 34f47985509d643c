#include "cuda/kernels/states/causal_conv.h"

#include "cuda/device/gates.cuh"
#include "cuda/kernels/launch.cuh"

namespace headrace::cuda {
namespace {

constexpr int kConvThreads = 128;

/// Neighbouring channels of a row, moved at once.
template <class T, int kSize>
struct alignas(sizeof(T) * kSize) Channels {
  T at[kSize];
};

template <class T, int kSize>
__device__ inline Channels<T, kSize> load_channels(const T* from) {
  return *reinterpret_cast<const Channels<T, kSize>*>(from);
}

template <class T, int kSize>
__device__ inline Channels<float, kSize> load_wide(const T* from) {
  const Channels<T, kSize> values = load_channels<T, kSize>(from);
  Channels<float, kSize> out;
  HEADRACE_UNROLL
  for (int i = 0; i < kSize; ++i) out.at[i] = to_float(values.at[i]);
  return out;
}

template <class T>
struct Conv {
  const T* x;
  T* out;
  int64_t stride, out_stride;
  const float *weight, *bias;
  int32_t channels, kernel;
  bool silu;
};

/// A thread's channels of a slice: what came in at its row `row`, or before it.
template <class T, int kSize>
struct SliceChannels {
  const T* x;  ///< of the slice's row 0
  int64_t stride;
  const float* window;  ///< of state_in, null: zeros
  int64_t channels;     ///< of a row of the window
  int32_t window_rows;

  __device__ Channels<float, kSize> at(int32_t row) const {
    if (row >= 0) return load_wide<T, kSize>(x + row * stride);
    if (window == nullptr) return {};
    return load_channels<float, kSize>(window + (window_rows + row) * channels);
  }
};

/// Windows behind the rows of all stores. state_out may be state_in: row w is written before the
/// ones behind it, and read from those alone.
template <class T, int kSize>
__device__ inline void store_windows(const SliceChannels<T, kSize>& from, const StateSlice& slice,
                                     const StateStep& step, const StateArray& states,
                                     int64_t channel) {
  for (int32_t i = 0; i < slice.num_stores; ++i) {
    const StateSave store = step.stores[slice.first_store + i];
    float* const to = states.slot(store.slot) + channel;
    for (int32_t w = 0; w < from.window_rows; ++w) {
      *reinterpret_cast<Channels<float, kSize>*>(to + w * from.channels) =
          from.at(store.row + 1 - from.window_rows + w);
    }
  }
}

/// A block has a piece of a slice. The first piece's also keeps the slice's windows: nobody else
/// touches its slots. kTaps: kernel or more, then with zeros in front.
template <class T, int kSize, int kTaps>
__global__ void __launch_bounds__(kConvThreads)
    causal_conv_kernel(Conv<T> conv, StateStep step, StateArray states) {
  start_next();
  wait_for_previous();
  const int parts = divide_up(conv.channels, kConvThreads * kSize);
  const auto block = static_cast<int32_t>(blockIdx.x);
  const StatePiece piece = step.pieces[block / parts];
  const StateSlice slice = step.slices[piece.slice];
  const int32_t rows = least(kPieceRows, slice.num_rows - piece.row);
  const int channel = (block % parts * kConvThreads + static_cast<int>(threadIdx.x)) * kSize;
  if (rows <= 0 || channel >= conv.channels) return;

  const int32_t window_rows = conv.kernel - 1;
  const SliceChannels<T, kSize> from{
      conv.x + slice.first_row * conv.stride + channel, conv.stride,
      slice.state_in < 0 ? nullptr : states.slot(slice.state_in) + channel, conv.channels,
      window_rows};
  float taps[kTaps][kSize], bias[kSize];
  Channels<float, kSize> inputs[kTaps];
  HEADRACE_UNROLL
  for (int j = 0; j < kTaps; ++j) {
    const int tap = j - (kTaps - conv.kernel);
    inputs[j] = {};
    if (tap >= 0 && j < kTaps - 1) inputs[j] = from.at(piece.row - (kTaps - 1 - j));
    HEADRACE_UNROLL
    for (int i = 0; i < kSize; ++i) {
      taps[j][i] = tap < 0 ? 0.0f : conv.weight[int64_t{tap} * conv.channels + channel + i];
    }
  }
  HEADRACE_UNROLL
  for (int i = 0; i < kSize; ++i) bias[i] = conv.bias == nullptr ? 0.0f : conv.bias[channel + i];
  if (piece.row == 0) store_windows(from, slice, step, states, channel);

  T* to = conv.out + int64_t{slice.first_row + piece.row} * conv.out_stride + channel;
  HEADRACE_UNROLL_BY_2
  for (int32_t row = 0; row < rows; ++row) {
    inputs[kTaps - 1] = load_wide<T, kSize>(from.x + (piece.row + row) * from.stride);
    Channels<T, kSize> result;
    HEADRACE_UNROLL
    for (int i = 0; i < kSize; ++i) {
      float sum = bias[i];
      HEADRACE_UNROLL
      for (int j = 0; j < kTaps; ++j) sum = fmaf(taps[j][i], inputs[j].at[i], sum);
      result.at[i] = from_float<T>(conv.silu ? sigmoid_times(sum, sum) : sum);
    }
    *reinterpret_cast<Channels<T, kSize>*>(to + row * conv.out_stride) = result;
    HEADRACE_UNROLL
    for (int j = 0; j + 1 < kTaps; ++j) inputs[j] = inputs[j + 1];
  }
}

template <class T, int kSize, int kTaps>
void run(const Conv<T>& conv, const StateStep& step, const StateArray& states, Stream stream) {
  const int64_t parts = divide_up(conv.channels, kConvThreads * kSize);
  const LaunchShape shape{
      .grid = {grid_size(parts * step.num_pieces)}, .threads = kConvThreads, .overlaps = true};
  launch("causal_conv", causal_conv_kernel<T, kSize, kTaps>, shape, stream, conv, step, states);
}

/// May rows be moved by pairs of channels?
template <class T>
bool has_pairs(const Conv<T>& conv) {
  const auto places = reinterpret_cast<uintptr_t>(conv.x) | reinterpret_cast<uintptr_t>(conv.out);
  return places % (2 * sizeof(T)) == 0 && conv.stride % 2 == 0 && conv.out_stride % 2 == 0 &&
         conv.channels % 2 == 0;
}

}  // namespace

void causal_conv(const CausalConvArgs& args, Stream stream) {
  const ConvSpec& spec = args.spec;
  HEADRACE_CHECK(args.x.cols == spec.channels && args.out.cols == spec.channels, args.x.cols,
                 " to ", args.out.cols);
  HEADRACE_CHECK(spec.kernel >= 2 && spec.kernel <= kLargestConv, spec.kernel);
  if (args.step.num_pieces == 0) return;
  with_element(args.dtype, [&](auto element) {
    using T = decltype(element);
    const Conv<T> conv{.x = static_cast<const T*>(args.x.data),
                       .out = static_cast<T*>(args.out.data),
                       .stride = args.x.stride,
                       .out_stride = args.out.stride,
                       .weight = args.weight,
                       .bias = args.bias,
                       .channels = spec.channels,
                       .kernel = spec.kernel,
                       .silu = spec.silu};
    // Models' kernels have up to 4 rows.
    if (spec.kernel > 4) return run<T, 1, kLargestConv>(conv, args.step, args.states, stream);
    if (has_pairs(conv)) return run<T, 2, 4>(conv, args.step, args.states, stream);
    run<T, 1, 4>(conv, args.step, args.states, stream);
  });
}

}  // namespace headrace::cuda
