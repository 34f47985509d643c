#pragma once

// What weights in panels (kernels_linear.h) have in common, whatever is in a panel.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "backend/contract/backend.h"
#include "backend/cpu/threads/thread_pool.h"
#include "backend/cpu/weights/panel_columns.h"
#include "backend/host/weight_source.h"
#include "base/checked_math.h"

namespace headrace {

/// Panels one after the other: those of expert 0, of expert 1, ...
class PanelWeight : public PackedWeight {
 public:
  /// Bytes that experts start at multiples of.
  static constexpr int64_t kExpertAlignment = 256;

  const PanelCut& cut() const noexcept { return cut_; }
  /// Of one expert.
  int64_t num_panels() const noexcept { return cut_.num_panels(); }
  /// Groups of k in a panel, as its kernels count them.
  int64_t k_groups() const noexcept { return k_groups_; }
  int64_t panel_bytes() const noexcept { return panel_bytes_; }
  /// From one expert to the next.
  int64_t expert_bytes() const noexcept {
    const int64_t bytes = num_panels() * panel_bytes_;
    return experts() == 1 ? bytes : round_up(bytes, kExpertAlignment);
  }
  int64_t panel_offset(int64_t i, int64_t expert = 0) const noexcept {
    return expert * expert_bytes() + i * panel_bytes_;
  }
  const std::byte* panel(int64_t i, int64_t expert = 0) const noexcept {
    return static_cast<const std::byte*>(data()) + panel_offset(i, expert);
  }

 protected:
  PanelWeight(const WeightShape& shape, DType storage, const PanelCut& cut, int64_t k_groups,
              int64_t panel_bytes, Backend::Buffer memory)
      : PackedWeight(shape.n, shape.k, storage, memory.data, memory.bytes, shape.experts),
        cut_(cut),
        k_groups_(k_groups),
        panel_bytes_(panel_bytes),
        memory_(std::move(memory)) {}

 private:
  PanelCut cut_;
  int64_t k_groups_, panel_bytes_;
  Backend::Buffer memory_;
};

/// Bytes of all panels of a weight without memory; nullopt: more than an uint64_t counts.
std::optional<uint64_t> count_panel_bytes(const PanelWeight& weight);

/// Calls pack(parts of the expert, panel, its memory) for every panel of `weight`, which lies at
/// `data`, on the pool's threads. A panel is packed by the group of threads that will read it.
template <class Pack>
void pack_all_panels(const WeightSpec& spec, const PanelWeight& weight, std::byte* data,
                     ThreadPool& pool, const Pack& pack) {
  const int64_t panels = weight.num_panels();
  pool.parallel_rounds(weight.experts(), panels, [&](int64_t expert, int64_t panel, int32_t) {
    pause_packing(spec);
    pack(expert_parts(spec, expert), panel, data + weight.panel_offset(panel, expert));
  });
  const int64_t gap = weight.expert_bytes() - panels * weight.panel_bytes();
  for (int32_t expert = 0; expert < weight.experts(); ++expert) {
    std::fill_n(data + weight.panel_offset(panels, expert), gap, std::byte{});
  }
}

}  // namespace headrace
