#include "cuda/host/kernel_trial.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include "base/check.h"
#include "cuda/host/pinned.h"
#include "cuda/host/step_graphs.h"

namespace headrace::cuda {

namespace {

constexpr int64_t kFeatures = 192, kInner = 96;
// The last one's are the rows that all are held against.
constexpr std::array<int64_t, 5> kRows = {1, 9, 64, 200, 257};
constexpr int64_t kMostRows = kRows.back();

constexpr WeightLayout layout(bool gate_up) { return {kFeatures, kInner, gate_up}; }
constexpr size_t kWeightBytes = 2 * static_cast<size_t>(layout(false).elements());
constexpr size_t kBiasBytes = 2 * kFeatures;
constexpr size_t kInputBytes = kWeightBytes + kBiasBytes + 2 * kMostRows * kInner;
constexpr size_t kSlotBytes = sizeof(float) * kFeatures * kMostRows;
constexpr size_t kOutputBytes = (kRows.size() + 1) * kSlotBytes;
static_assert(layout(true).elements() == layout(false).elements() && kBiasBytes % 128 == 0);

/// Device memory that isn't the model's.
class TrialMemory {
 public:
  TrialMemory(CudaContext& context, size_t bytes) : context_(context) {
    context.check(context.api().malloc_device(&data_, bytes), "taking memory");
  }
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;
  ~TrialMemory() { static_cast<void>(context_.api().free_device(data_)); }
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  CudaContext& context_;
  void* data_ = nullptr;
};

struct LinearCase {
  const char* name;
  DType dtype;
  bool silu_mul;  ///< else with a bias, to float32
};

constexpr LinearCase kCases[] = {{"bfloat16", DType::kBF16, false},
                                 {"bfloat16 with SiLU", DType::kBF16, true},
                                 {"float16", DType::kF16, false},
                                 {"float16 with SiLU", DType::kF16, true}};

class LinearTrial {
 public:
  LinearTrial(CudaContext& context, LinearOp op)
      : context_(context),
        op_(op),
        pinned_(context, std::max(kInputBytes, kOutputBytes)),
        inputs_(context, kInputBytes),
        outputs_(context, kOutputBytes),
        graphs_(context) {}
  /// Nothing of it is left on the stream.
  ~LinearTrial() { static_cast<void>(context_.api().synchronize(context_.stream())); }
  LinearTrial(const LinearTrial&) = delete;
  LinearTrial& operator=(const LinearTrial&) = delete;

  std::string run() {
    upload();
    for (const LinearCase& one : kCases) {
      // Called, recorded and launched, launched once more.
      for (const char* how : {"", ", recorded", ", from a graph"}) {
        context_.check(context_.api().fill_zero(outputs_.data(), kOutputBytes, context_.stream()),
                       "a trial");
        launch(one, kMostRows, false, 0);
        graphs_.run({this, &one, kMostRows, 1}, 0, [&] { launch_all(one); });
        const int64_t rows = first_difference(one);
        if (rows > 0) return str_cat("of ", rows, " rows in ", one.name, how, " they differ");
      }
    }
    return "";
  }

 private:
  // Numbers from 1 to 2 as float16, and from 1/128 to 2 as bfloat16, of both signs.
  void upload() {
    std::mt19937 random(1);
    auto* const numbers = reinterpret_cast<uint16_t*>(pinned_.data());
    for (size_t i = 0; i < kInputBytes / 2; ++i) {
      const auto bits = static_cast<uint32_t>(random());
      numbers[i] = static_cast<uint16_t>(0x3c00 | (bits & 0x83ff));
    }
    constexpr auto kStride = static_cast<size_t>(layout(false).stride());
    for (size_t i = 0; i < kWeightBytes / 2; ++i) {
      if (i % kStride >= kInner) numbers[i] = 0;
    }
    context_.check(context_.api().copy(inputs_.data(), pinned_.data(), kInputBytes,
                                       CopyKind::kHostToDevice, context_.stream()),
                   "a trial");
    context_.wait();
  }

  static int64_t columns(const LinearCase& one) { return one.silu_mul ? kFeatures / 2 : kFeatures; }

  void launch_all(const LinearCase& one) {
    for (size_t i = 0; i < kRows.size(); ++i) launch(one, kRows[i], true, i + 1);
  }

  void launch(const LinearCase& one, int64_t rows, bool has_wgmma, size_t slot) {
    const std::byte* const bias = inputs_.data() + kWeightBytes;
    LinearArgs args{.dtype = one.dtype,
                    .x = {bias + kBiasBytes, rows, kInner, kInner},
                    .weight = inputs_.data(),
                    .layout = layout(one.silu_mul),
                    .bias = one.silu_mul ? nullptr : bias,
                    .silu_mul = one.silu_mul,
                    .out_dtype = one.silu_mul ? one.dtype : DType::kF32,
                    .multiprocessors = context_.properties().multiprocessors,
                    .has_wgmma = has_wgmma};
    args.out = {outputs_.data() + slot * kSlotBytes, rows, columns(one), columns(one)};
    op_(args, context_.stream());
  }

  /// Rows of the first launch that has other bits than slot 0; 0 = none.
  int64_t first_difference(const LinearCase& one) {
    context_.check(context_.api().copy(pinned_.data(), outputs_.data(), kOutputBytes,
                                       CopyKind::kDeviceToHost, context_.stream()),
                   "a trial");
    context_.wait();
    const size_t row_bytes =
        static_cast<size_t>(columns(one)) * dtype_size(one.silu_mul ? one.dtype : DType::kF32);
    for (size_t i = 0; i < kRows.size(); ++i) {
      const std::byte* const found = pinned_.data() + (i + 1) * kSlotBytes;
      const size_t bytes = static_cast<size_t>(kRows[i]) * row_bytes;
      if (std::memcmp(found, pinned_.data(), bytes) != 0) return kRows[i];
    }
    return 0;
  }

  CudaContext& context_;
  LinearOp op_;
  PinnedBuffer pinned_;
  TrialMemory inputs_, outputs_;
  StepGraphs graphs_;
};

}  // namespace

std::string try_wgmma_linears(CudaContext& context, LinearOp op) {
  context.enter();
  try {
    return LinearTrial(context, op).run();
  } catch (const Error& error) {
    context.note_failure();
    if (context.lost()) throw;
    context.settle();
    return error.what();
  }
}

}  // namespace headrace::cuda
