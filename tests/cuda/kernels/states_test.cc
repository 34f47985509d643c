// Kernels of layers with a state: against sums in double, and a sequence's bits whatever its
// slices, saves and neighbours.

#include <cmath>
#include <map>

#include "cuda/kernels/elementwise/multiply.h"
#include "cuda/kernels/states/causal_conv.h"
#include "cuda/kernels/states/delta_prepare.h"
#include "cuda/kernels/states/delta_rule.h"
#include "cuda/kernels/states/gated_norm.h"
#include "cuda/kernels/states/ssm_scan.h"
#include "cuda/kernels/states/state_lists.h"
#include "device_data.h"

namespace headrace::cuda {
namespace {

constexpr int32_t kSlots = 6;
constexpr int32_t kRows = 41;  // of the sequence that is compared

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

/// Slots of `numbers` each, full of NaN.
class Slots {
 public:
  explicit Slots(int64_t numbers)
      : stride_((numbers + 63) / 64 * 64), memory_(static_cast<size_t>(kSlots * stride_)) {}
  StateArray array() const { return {memory_.data(), stride_}; }
  std::vector<float> read(int32_t slot, int64_t numbers) const {
    const float* const from = array().slot(slot);
    return {from, from + numbers};
  }

 private:
  int64_t stride_;
  DeviceArray<float> memory_;
};

/// A step's lists in a kernel's memory. Padding is behind the slices.
class Lists {
 public:
  explicit Lists(std::span<const SeqSlice> seqs) {
    lists_.fill(seqs, seqs.size() + 1);
    slices_.emplace(lists_.slices);
    stores_.emplace(lists_.stores);
    pieces_.emplace(lists_.pieces);
  }
  StateStep step() const {
    return {slices_->data(), stores_->data(), pieces_->data(),
            static_cast<int32_t>(lists_.slices.size()), static_cast<int32_t>(lists_.pieces.size())};
  }

 private:
  StateLists lists_;
  std::optional<DeviceArray<StateSlice>> slices_;
  std::optional<DeviceArray<StateSave>> stores_;
  std::optional<DeviceArray<StatePiece>> pieces_;
};

class States : public KernelTest {
 protected:
  /// A kernel that runs a step: rows [first, first + ...) of the inputs that the test made.
  using Run = std::function<void(const StateStep&, int64_t first, const StateArray&)>;

  /// The whole sequence by one slice from zeros to slot 0, with saves behind rows 0 and 17.
  void run_whole(const Run& run, const Slots& slots) {
    const StateSave saves[] = {{0, 1}, {17, 2}};
    const SeqSlice seqs[] = {
        {.first_row = 0, .num_rows = kRows, .state_in = kZeroState, .state_out = 0, .saves = saves}};
    run(Lists(seqs).step(), 0, slots.array());
  }
  /// Again to slot 3, in place, by steps of these many rows, which leave in slot 4 what is behind
  /// row 17. A slice from slot 1 on is beside those of two rows or more: its first row is theirs.
  void run_cut(const Run& run, const Slots& slots, std::initializer_list<int32_t> cuts) {
    int32_t first = 0;
    for (const int32_t rows : cuts) {
      const StateSave save{17 - first, 4};
      std::vector<SeqSlice> seqs = {{.num_rows = rows,
                                     .state_in = first == 0 ? kZeroState : 3,
                                     .state_out = first + rows == 18 ? 4 : 3}};
      if (save.row >= 0 && save.row < rows - 1) seqs[0].saves = {&save, 1};
      run(Lists(seqs).step(), first, slots.array());
      first += rows;
    }
    ASSERT_EQ(first, kRows);
  }

  Random random_{71};
};

}  // namespace
}  // namespace headrace::cuda
