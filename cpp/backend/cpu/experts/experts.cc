#include <algorithm>

#include "backend/checks/op_checks_experts.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/experts/expert_pairs.h"
#include "backend/cpu/ops/panel_product.h"
#include "backend/cpu/ops/panel_runs.h"
#include "backend/cpu/weights/quant_panels.h"
#include "base/check.h"
#include "base/checked_math.h"

// Rows are packed once, one by one. Then, for some experts at a time: their rows are gathered into
// tiles; gate and up; what comes of them is packed; down, whose panels each thread adds to its
// columns of `out`, expert by expert: that is the order of a row's sum, whatever its company.

namespace headrace {

namespace {

// Pairs of a row and an expert between whose products nothing is kept: what they take stays in the
// caches, and experts are seldom cut. Their groups hold no more.
constexpr int64_t kBlockPairs = ExpertPairs::kMostGroupRows;

// Where there are many rows, runs are made small for what threads wait at the end.
constexpr int64_t kManyRunsPerThread = 16;

constexpr int64_t kFloatBytes = sizeof(float);

/// From `column` on, of a group's expert; null: there is none.
const float* bias_of(const TensorView& bias, const ExpertGroup& group, int64_t n, int64_t column) {
  return bias.data == nullptr ? nullptr : bias.as<float>() + group.expert * n + column;
}

const QuantPanels* find_reordered(const PackedWeight& weight) {
  const auto* quantized = dynamic_cast<const QuantPanels*>(&weight);
  return quantized != nullptr && quantized->format().reordered ? quantized : nullptr;
}

}  // namespace

/// experts() under way.
class CpuBackend::ExpertsStep {
 public:
  ExpertsStep(CpuBackend& backend, const Experts& args);

  void run();

 private:
  using Groups = std::span<const ExpertGroup>;

  /// Calls visit(group, first, count, tile rows) for rows [first, first + count) of each group, so
  /// that all tiles which begin with a pair in [begin, end) are visited.
  template <class Visit>
  void for_tiles(const PanelProduct& product, Groups groups, int64_t begin, int64_t end,
                 const Visit& visit) const;
  void pack_input();
  void run_block(Groups groups, bool is_first);
  void gather(Groups groups);
  /// Where the experts' inputs have orders: each pair's row in its expert's.
  void gather_ordered(Groups groups);
  void multiply_gate_up(Groups groups);
  void pack_inner(Groups groups);
  void multiply_down(Groups groups, bool is_first);
  /// A group's products with panels [first, last) of its expert: blocks of rows, one after the
  /// other. complete(first row of a block, panel, task) says where the results go.
  template <class Complete>
  void multiply(const PanelProduct& product, const ExpertGroup& group, const std::byte* activations,
                int64_t first, int64_t last, int32_t thread, const Complete& complete);
  /// Has threads that wait fetch the first panels of down that they will read.
  void fetch_down(const ExpertGroup& group);
  int64_t gate_up_runs(Groups groups) const;
  int64_t down_runs() const;

  int64_t rows() const { return args_.x.rows(); }
  int64_t threads() const { return backend_.pool_.num_threads(); }
  /// Runs that keep threads busy to the end.
  int64_t least_runs() const {
    return threads() * (rows() > kFewRows ? kManyRunsPerThread : kRunsPerThread);
  }

  CpuBackend& backend_;
  const Experts& args_;
  const PanelProduct gate_up_, down_;
  const QuantPanels* reordered_;  ///< gate_up, if its inputs have orders; else null
  const int64_t inner_cols_;
  const int64_t most_pairs_;  ///< of a block
  std::byte *pairs_memory_, *accumulators_;
  std::byte* singles_;      ///< [rows], packed one by one
  std::byte* tiles_;        ///< of a block's pairs: rows in tiles,
  float* ordered_;          ///< [pairs][H] rows in the order of their experts' inputs
  float* inner_;            ///< what gate and up give [pairs][inner_cols_],
  std::byte* inner_tiles_;  ///< the same in tiles
  const ExpertPairs* pairs_ = nullptr;
  const int64_t accumulator_bytes_;
};

CpuBackend::ExpertsStep::ExpertsStep(CpuBackend& backend, const Experts& args)
    : backend_(backend),
      args_(args),
      gate_up_(args.gate_up, *backend.isa_),
      down_(args.down, *backend.isa_),
      reordered_(find_reordered(args.gate_up)),
      inner_cols_(args.down.k()),
      most_pairs_(std::min(args.x.rows() * args.ids.cols(), kBlockPairs)),
      accumulator_bytes_(accumulators_of(gate_up_, RowBlocks::kMostRows)) {
  int64_t size = 0;
  const auto place = [&size](int64_t bytes) {
    const int64_t at = size;
    size += round_up(bytes, int64_t{256}) + kGapBytes;
    return at;
  };
  const int64_t pairs = place(
      static_cast<int64_t>(ExpertPairs::bytes(rows(), args.ids.cols(), args.gate_up.experts())));
  const int64_t singles = place(rows() * gate_up_.row_bytes());
  const int64_t tiles = place(most_pairs_ * gate_up_.row_bytes());
  const int64_t ordered =
      place(reordered_ == nullptr ? 0 : most_pairs_ * args.x.cols() * kFloatBytes);
  const int64_t inner = place(most_pairs_ * inner_cols_ * kFloatBytes);
  const int64_t inner_tiles = place(most_pairs_ * down_.row_bytes());
  const int64_t accumulators = place(threads() * accumulator_bytes_);
  std::byte* const memory = backend.scratch(static_cast<size_t>(size));
  pairs_memory_ = memory + pairs;
  singles_ = memory + singles;
  tiles_ = memory + tiles;
  ordered_ = reinterpret_cast<float*>(memory + ordered);
  inner_ = reinterpret_cast<float*>(memory + inner);
  inner_tiles_ = memory + inner_tiles;
  accumulators_ = memory + accumulators;
}

void CpuBackend::ExpertsStep::run() {
  const ExpertPairs pairs(pairs_memory_, args_);
  pairs_ = &pairs;
  const Groups groups = pairs.groups();
  if (reordered_ == nullptr) pack_input();
  for (size_t first = 0; first < groups.size();) {
    size_t last = first;
    int64_t count = 0;
    while (last < groups.size() && count + groups[last].rows <= kBlockPairs) {
      count += groups[last++].rows;
    }
    run_block(groups.subspan(first, last - first), first == 0);
    first = last;
  }
  // None of the rows' experts is here (Experts::first).
  for (int64_t row = 0; groups.empty() && row < rows(); ++row) {
    std::fill_n(args_.out.row<float>(row), args_.out.cols(), 0.0f);
  }
  pairs_ = nullptr;
}

void CpuBackend::ExpertsStep::pack_input() {
  const int64_t row_bytes = gate_up_.row_bytes();
  backend_.for_rows(
      rows(), row_bytes + args_.x.cols() * kFloatBytes, [&](int64_t begin, int64_t end) {
        gate_up_.pack_rows(args_.x, begin, end - begin, 1, singles_ + begin * row_bytes);
      });
}

void CpuBackend::ExpertsStep::run_block(Groups groups, bool is_first) {
  reordered_ == nullptr ? gather(groups) : gather_ordered(groups);
  multiply_gate_up(groups);
  pack_inner(groups);
  multiply_down(groups, is_first);
}

template <class Visit>
void CpuBackend::ExpertsStep::for_tiles(const PanelProduct& product, Groups groups, int64_t begin,
                                        int64_t end, const Visit& visit) const {
  const auto* group =
      std::upper_bound(groups.data(), groups.data() + groups.size(), begin,
                       [](int64_t pair, const ExpertGroup& each) { return pair < each.first; });
  for (--group; group != groups.data() + groups.size() && group->first < end; ++group) {
    const int64_t tile_rows = product.blocks_of(group->rows).tile_rows;
    const auto tile_from = [&](int64_t pair) {
      const int64_t row = round_up(std::max<int64_t>(pair - group->first, 0), tile_rows);
      return std::min<int64_t>(row, group->rows);
    };
    const int64_t first = tile_from(begin), last = tile_from(end);
    if (first < last) visit(*group, first, last - first, tile_rows);
  }
}

/// A group of one row is its own tile, packed already.
void CpuBackend::ExpertsStep::gather(Groups groups) {
  const int64_t first = groups.front().first;
  const int64_t pairs = groups.back().first + groups.back().rows - first;
  if (pairs == static_cast<int64_t>(groups.size())) return;
  const int64_t row_bytes = gate_up_.row_bytes();
  backend_.for_rows(pairs, 2 * row_bytes, [&](int64_t begin, int64_t end) {
    for_tiles(gate_up_, groups, first + begin, first + end,
              [&](const ExpertGroup& group, int64_t row, int64_t count, int64_t tile_rows) {
                if (group.rows == 1) return;
                const int64_t pair = group.first + row;
                gate_up_.gather_rows(singles_, pairs_->rows() + pair, count, tile_rows,
                                     tiles_ + (pair - first) * row_bytes);
              });
  });
}

void CpuBackend::ExpertsStep::gather_ordered(Groups groups) {
  const int64_t first = groups.front().first;
  const int64_t pairs = groups.back().first + groups.back().rows - first;
  const int64_t row_bytes = gate_up_.row_bytes(), cols = args_.x.cols();
  const TensorView ordered(ordered_, DType::kF32, {pairs, cols});
  backend_.for_rows(pairs, row_bytes + 2 * cols * kFloatBytes, [&](int64_t begin, int64_t end) {
    for_tiles(gate_up_, groups, first + begin, first + end,
              [&](const ExpertGroup& group, int64_t row, int64_t count, int64_t tile_rows) {
                const int64_t pair = group.first + row - first;
                const int32_t* const order = reordered_->order(group.expert);
                for (int64_t i = pair; i < pair + count; ++i) {
                  const float* const from = args_.x.row<float>(pairs_->rows()[first + i]);
                  float* const to = ordered.row<float>(i);
                  for (int64_t j = 0; j < cols; ++j) to[j] = from[order[j]];
                }
                gate_up_.pack_rows(ordered, pair, count, tile_rows, tiles_ + pair * row_bytes);
              });
  });
}

void CpuBackend::ExpertsStep::pack_inner(Groups groups) {
  const int64_t first = groups.front().first;
  const int64_t pairs = groups.back().first + groups.back().rows - first;
  const int64_t row_bytes = down_.row_bytes();
  const TensorView inner(inner_, DType::kF32, {pairs, inner_cols_});
  backend_.for_rows(pairs, row_bytes + inner_cols_ * kFloatBytes, [&](int64_t begin, int64_t end) {
    for_tiles(down_, groups, first + begin, first + end,
              [&](const ExpertGroup& group, int64_t row, int64_t count, int64_t tile_rows) {
                const int64_t pair = group.first + row - first;
                down_.pack_rows(inner, pair, count, tile_rows, inner_tiles_ + pair * row_bytes);
              });
  });
}

template <class Complete>
void CpuBackend::ExpertsStep::multiply(const PanelProduct& product, const ExpertGroup& group,
                                       const std::byte* activations, int64_t first, int64_t last,
                                       int32_t thread, const Complete& complete) {
  const RowBlocks blocks = product.blocks_of(group.rows);
  const PanelCut& cut = product.weight().cut();
  const int64_t outputs = cut.panel_outputs();
  for (int64_t row = 0; row < group.rows; row += blocks.block_rows) {
    for (int64_t panel = first; panel < last; ++panel) {
      PanelTask task{};
      task.activations = activations + row * product.row_bytes();
      task.rows = std::min(blocks.block_rows, group.rows - row);
      task.tile_rows = blocks.tile_rows;
      task.accumulators = reinterpret_cast<float*>(accumulators_ + thread * accumulator_bytes_);
      task.cols = static_cast<int32_t>(std::min(outputs, cut.outputs() - panel * outputs));
      complete(row, panel * outputs, task);
      product.multiply(group.expert, panel, task);
    }
  }
}

int64_t CpuBackend::ExpertsStep::gate_up_runs(Groups groups) const {
  const PanelWeight& weight = gate_up_.weight();
  const int64_t panels = weight.num_panels();
  const int64_t large = ceil_div(panels * weight.panel_bytes(), kRunBytes);
  const int64_t enough = ceil_div(least_runs(), static_cast<int64_t>(groups.size()));
  // Each group of threads has its part of every expert's panels.
  const int64_t least = backend_.pool_.num_groups() == 1 ? 1 : threads();
  return std::min(std::max({large, enough, least}), panels);
}

void CpuBackend::ExpertsStep::multiply_gate_up(Groups groups) {
  const int64_t panels = gate_up_.weight().num_panels(), runs = gate_up_runs(groups);
  const int64_t first_pair = groups.front().first;
  const auto count = static_cast<int64_t>(groups.size());
  fetch_down(groups.front());
  backend_.pool_.parallel_rounds(count, runs, [&](int64_t number, int64_t run, int32_t thread) {
    const ExpertGroup& group = groups[static_cast<size_t>(number)];
    const int64_t first = group.first - first_pair;
    const std::byte* const activations =
        group.rows == 1 && reordered_ == nullptr
            ? singles_ + pairs_->rows()[group.first] * gate_up_.row_bytes()
            : tiles_ + first * gate_up_.row_bytes();
    multiply(gate_up_, group, activations, panels * run / runs, panels * (run + 1) / runs, thread,
             [&](int64_t row, int64_t column, PanelTask& task) {
               task.out = inner_ + (first + row) * inner_cols_ + column;
               task.out_stride = inner_cols_;
               task.bias = bias_of(args_.gate_up_bias, group, args_.gate_up.n(), column);
               task.epilogue = PanelEpilogue::kRelu2;
               if (!args_.gated()) return;
               if (task.bias != nullptr) task.up_bias = task.bias + inner_cols_;
               task.epilogue = PanelEpilogue::kGateMul;
               task.gate = args_.gate;
             });
  });
}

int64_t CpuBackend::ExpertsStep::down_runs() const {
  return std::min(least_runs(), down_.weight().num_panels());
}

void CpuBackend::ExpertsStep::multiply_down(Groups groups, bool is_first) {
  const int64_t panels = down_.weight().num_panels(), runs = down_runs();
  const int64_t outputs = down_.weight().cut().panel_outputs();
  const int64_t first_pair = groups.front().first;
  backend_.read_ahead(rows());
  backend_.pool_.parallel_rounds(1, runs, [&](int64_t, int64_t run, int32_t thread) {
    const int64_t first = panels * run / runs, last = panels * (run + 1) / runs;
    if (is_first) {
      const int64_t begin = first * outputs, end = std::min(last * outputs, args_.out.cols());
      for (int64_t row = 0; row < rows(); ++row) {
        std::fill(args_.out.row<float>(row) + begin, args_.out.row<float>(row) + end, 0.0f);
      }
    }
    for (const ExpertGroup& group : groups) {
      const std::byte* const activations =
          inner_tiles_ + (group.first - first_pair) * down_.row_bytes();
      multiply(down_, group, activations, first, last, thread,
               [&](int64_t row, int64_t column, PanelTask& task) {
                 task.out = args_.out.as<float>() + column;
                 task.out_stride = args_.out.row_stride;
                 task.bias = bias_of(args_.down_bias, group, args_.out.cols(), column);
                 task.epilogue = PanelEpilogue::kAddWeighted;
                 task.out_rows = pairs_->rows() + group.first + row;
                 task.row_weights = pairs_->weights() + group.first + row;
               });
    }
  });
}

void CpuBackend::ExpertsStep::fetch_down(const ExpertGroup& group) {
  if (rows() > kFewRows) return;
  const PanelWeight& weight = down_.weight();
  const int64_t panels = weight.num_panels(), runs = down_runs();
  for (int32_t thread = 0; thread < backend_.pool_.num_threads(); ++thread) {
    const int64_t run = backend_.pool_.first_of(thread, runs);
    const int64_t first = panels * run / runs, last = panels * (run + 1) / runs;
    const int64_t bytes = std::min((last - first) * weight.panel_bytes(), kAheadBytes);
    backend_.pool_.read_ahead(thread, weight.panel(first, group.expert),
                              static_cast<size_t>(bytes));
  }
}

void CpuBackend::experts(const Experts& args) {
  check_experts(args);
  HEADRACE_CHECK(
      panels_of(args.gate_up).cut().gate_up == args.gated() && !panels_of(args.down).cut().gate_up,
      "the weight was packed for another use");
  if (args.x.rows() == 0) return;
  ExpertsStep step(*this, args);
  if (!reserving_) step.run();
}

}  // namespace headrace
