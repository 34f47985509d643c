#include "cuda/host/memory/device_states.h"

#include <utility>

#include "base/check.h"
#include "base/checked_math.h"

namespace headrace::cuda {

namespace {

constexpr uint64_t kAlignedNumbers = 64;  // 256 bytes

/// Numbers that a part of a slot takes.
uint64_t part_numbers(uint64_t numbers) { return round_up(numbers, kAlignedNumbers); }

}  // namespace

DeviceStates::DeviceStates(const CacheLayout& layout, int32_t num_slots, Backend::Buffer storage)
    : storage_(std::move(storage)),
      stride_(static_cast<int64_t>(slot_bytes(layout) / sizeof(float))),
      num_slots_(num_slots) {
  if (num_slots == 0) return;
  auto* next = static_cast<float*>(storage_.data);
  for (const StateRows& rows : layout.states) {
    float* const matrices = next + part_numbers(rows.window_numbers());
    places_.push_back({next, matrices});
    next = matrices + part_numbers(rows.matrix_numbers());
  }
}

size_t DeviceStates::slot_bytes(const CacheLayout& layout) {
  uint64_t numbers = 0;  // a layer's are below 2^48 (check_state_layout)
  for (const StateRows& rows : layout.states) {
    numbers += part_numbers(rows.window_numbers()) + part_numbers(rows.matrix_numbers());
  }
  return numbers * sizeof(float);
}

void DeviceStates::add_host_slots(CudaContext& context, int32_t count) {
  HEADRACE_CHECK(num_slots_ > 0 && num_host_slots_ == 0, count, " for ", num_slots_);
  host_storage_ = pin_for_swaps(context, count, static_cast<size_t>(stride_) * sizeof(float));
  num_host_slots_ = count;
}

void DeviceStates::copy(CudaContext& context, const BlockCopy& copy, Stream stream) {
  HEADRACE_CHECK(copy.block >= 0 && copy.block < num_slots_, "slot ", copy.block, " of ",
                 num_slots_);
  HEADRACE_CHECK(copy.host_block >= 0 && copy.host_block < num_host_slots_, "host slot ",
                 copy.host_block, " of ", num_host_slots_);
  const size_t bytes = static_cast<size_t>(stride_) * sizeof(float);
  std::byte* const own =
      static_cast<std::byte*>(storage_.data) + static_cast<size_t>(copy.block) * bytes;
  std::byte* const host = host_storage_.data() + static_cast<size_t>(copy.host_block) * bytes;
  context.check(copy.to_host
                    ? context.api().copy(host, own, bytes, CopyKind::kDeviceToHost, stream)
                    : context.api().copy(own, host, bytes, CopyKind::kHostToDevice, stream),
                "copying states");
}

}  // namespace headrace::cuda
