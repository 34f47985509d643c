#include "model/sources/cache_layout.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"
#include "base/checked_math.h"

namespace headrace {

namespace {

/// Layers that keep the same.
struct Kind {
  PagedRows rows;
  std::vector<int32_t> layers;
};

/// Those that keep all rows first, then by falling window. Of layers with rows.
std::vector<Kind> list_kinds(const std::vector<LayerKeeps>& layers) {
  std::vector<Kind> out;
  for (size_t i = 0; i < layers.size(); ++i) {
    const PagedRows& rows = layers[i].rows;
    if (rows.num_kv_heads == 0) continue;
    const auto found = std::ranges::find(out, rows, &Kind::rows);
    Kind& kind = found != out.end() ? *found : out.emplace_back(Kind{rows, {}});
    kind.layers.push_back(static_cast<int32_t>(i));
  }
  std::ranges::sort(out, [](const Kind& a, const Kind& b) {
    if ((a.rows.window == 0) != (b.rows.window == 0)) return a.rows.window == 0;
    return a.rows.window > b.rows.window;
  });
  return out;
}

/// Layers of the largest groups that leave no more than a sixteenth of their blocks unused; 1
/// always does. Fewer groups are fewer block tables.
int32_t choose_group_size(const std::vector<Kind>& kinds) {
  constexpr size_t kMostUnused = 16;
  size_t most = 1, num_layers = 0;
  for (const Kind& kind : kinds) {
    most = std::max(most, kind.layers.size());
    num_layers += kind.layers.size();
  }
  for (size_t size = most; size > 1; --size) {
    size_t parts = 0;
    for (const Kind& kind : kinds) parts += round_up(kind.layers.size(), size);
    if ((parts - num_layers) * kMostUnused <= parts) return static_cast<int32_t>(size);
  }
  return 1;
}

}  // namespace

std::vector<LayerKeeps> list_kept(const ModelSources& sources) {
  std::vector<LayerKeeps> out;
  const auto add = [&out](const LayerSources& layer) {
    LayerKeeps& kept = out.emplace_back();
    if (layer.mixer != nullptr) kept = {layer.mixer->cache_rows(), layer.mixer->state()};
  };
  for (const LayerSources& layer : sources.layers) add(layer);
  if (sources.mtp) add(sources.mtp->layer);
  return out;
}

CacheLayout make_cache_layout(std::vector<LayerKeeps> layers, const CacheOptions& options) {
  for (auto& [rows, state] : layers) {
    rows.dtype = options.dtype;
    if (rows.window >= options.windows_below) rows.window = 0;
  }
  const std::vector<Kind> kinds = list_kinds(layers);
  HEADRACE_CHECK(!kinds.empty(), layers.size());
  const int32_t size = choose_group_size(kinds);
  CacheLayout out{options.block_size, {}, std::vector<CachePlace>(layers.size(), {-1, 0}), {}};
  for (const Kind& kind : kinds) {
    for (size_t i = 0; i < kind.layers.size(); ++i) {
      const int32_t slot = static_cast<int32_t>(i) % size;
      if (slot == 0) out.groups.push_back({kind.rows, 0});
      ++out.groups.back().num_layers;
      out.layers[static_cast<size_t>(kind.layers[i])] = {out.num_groups() - 1, slot};
    }
  }
  const auto has_state = [](const LayerKeeps& layer) { return !layer.state.empty(); };
  if (std::ranges::any_of(layers, has_state)) {
    for (const LayerKeeps& layer : layers) out.states.push_back(layer.state);
  }
  return out;
}

}  // namespace headrace
