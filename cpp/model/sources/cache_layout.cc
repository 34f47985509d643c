#include "model/sources/cache_layout.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"
#include "base/checked_math.h"

namespace headrace {

namespace {

/// Layers that keep the same.
struct Kind {
  PagedRows whole;  ///< LayerKeeps::whole
  PagedRows rows;
  std::vector<int32_t> layers;
};

/// Those that keep all rows first, then by falling window. Of layers with rows.
std::vector<Kind> list_kinds(const std::vector<LayerKeeps>& layers) {
  std::vector<Kind> out;
  for (size_t i = 0; i < layers.size(); ++i) {
    const PagedRows& rows = layers[i].rows;
    if (rows.num_kv_heads == 0) continue;
    const PagedRows& whole = layers[i].whole;
    const auto found = std::ranges::find(out, whole, &Kind::whole);
    Kind& kind = found != out.end() ? *found : out.emplace_back(Kind{whole, rows, {}});
    kind.layers.push_back(static_cast<int32_t>(i));
  }
  std::ranges::stable_sort(out, [](const Kind& a, const Kind& b) {
    if ((a.rows.window == 0) != (b.rows.window == 0)) return a.rows.window == 0;
    return a.rows.window > b.rows.window;
  });
  return out;
}

/// Layers of a kind that blocks of so many numbers a token take.
size_t group_size(const Kind& kind, int64_t numbers) {
  return static_cast<size_t>(numbers / kind.whole.numbers());
}

/// What share of blocks of so many numbers a token holds nothing.
double unused_share(const std::vector<Kind>& kinds, int64_t numbers) {
  double used = 0.0, all = 0.0;
  for (const Kind& kind : kinds) {
    const size_t groups = ceil_div(kind.layers.size(), group_size(kind, numbers));
    all += static_cast<double>(groups) * static_cast<double>(numbers);
    used += static_cast<double>(kind.layers.size()) * static_cast<double>(kind.whole.numbers());
  }
  return 1.0 - used / all;
}

/// Numbers a token that blocks have room for: of the largest that leave no more than a sixteenth
/// unused, or of those that leave least. Larger blocks are fewer groups, hence fewer block tables.
int64_t choose_numbers(const std::vector<Kind>& kinds) {
  constexpr double kMostUnused = 1.0 / 16;
  int64_t least = 0;  // that every kind has room for a layer
  for (const Kind& kind : kinds) least = std::max(least, kind.whole.numbers());
  int64_t best = least;
  double best_unused = std::max(kMostUnused, unused_share(kinds, least));
  for (const Kind& kind : kinds) {
    for (int64_t size = std::ssize(kind.layers); size > 0; --size) {
      const int64_t numbers = size * kind.whole.numbers();
      if (numbers < least) break;
      const double unused = std::max(kMostUnused, unused_share(kinds, numbers));
      if (unused > best_unused || (unused == best_unused && numbers <= best)) continue;
      best = numbers;
      best_unused = unused;
    }
  }
  return best;
}

}  // namespace

std::vector<LayerKeeps> list_kept(const ModelSources& sources) {
  std::vector<LayerKeeps> out;
  const auto add = [&out](const LayerSources& layer) {
    LayerKeeps& kept = out.emplace_back();
    if (layer.mixer == nullptr) return;
    kept = {layer.mixer->cache_rows(), layer.mixer->state(), layer.mixer->reads_rows_of(),
            layer.mixer->whole_cache_rows()};
  };
  for (const LayerSources& layer : sources.layers) add(layer);
  if (sources.mtp) add(sources.mtp->layer);
  return out;
}

CacheLayout make_cache_layout(std::vector<LayerKeeps> layers, const CacheOptions& options) {
  for (LayerKeeps& layer : layers) {
    if (layer.whole.num_kv_heads == 0) layer.whole = layer.rows;
    for (PagedRows* rows : {&layer.rows, &layer.whole}) {
      rows->dtype = options.dtype;
      if (rows->window >= options.windows_below) rows->window = 0;
    }
  }
  const std::vector<Kind> kinds = list_kinds(layers);
  HEADRACE_CHECK(!kinds.empty(), layers.size());
  const int64_t numbers = choose_numbers(kinds);
  CacheLayout out{options.block_size, {}, std::vector<CachePlace>(layers.size(), {-1, 0}), {}};
  for (const Kind& kind : kinds) {
    const size_t size = group_size(kind, numbers);
    for (size_t i = 0; i < kind.layers.size(); ++i) {
      const auto slot = static_cast<int32_t>(i % size);
      if (slot == 0) out.groups.push_back({kind.rows, 0});
      ++out.groups.back().num_layers;
      out.layers[static_cast<size_t>(kind.layers[i])] = {out.num_groups() - 1, slot};
    }
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].reads >= 0) out.layers[i] = out.place(layers[i].reads);
  }
  const auto has_state = [](const LayerKeeps& layer) { return !layer.state.empty(); };
  if (std::ranges::any_of(layers, has_state)) {
    for (const LayerKeeps& layer : layers) out.states.push_back(layer.state);
  }
  return out;
}

}  // namespace headrace
