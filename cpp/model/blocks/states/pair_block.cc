#include "model/blocks/states/pair_block.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/check.h"
#include "model/blocks/block.h"
#include "model/blocks/carver.h"

namespace headrace {

namespace {

/// Columns of the rows that a branch with a factor reads; without such a branch 0.
int64_t scaled_columns(const PairSources& sources) {
  const bool scales = sources.attention.scales.in != 1.0f || sources.scan.scales.in != 1.0f;
  return scales ? sources.attention.mixer->matrices().front()->k : 0;
}

/// Calls place() for each of both, which share scratch: they run one after the other.
template <class Place>
void place_both(Carver& carver, const Place& place) {
  const size_t begin = carver.offset();
  size_t end = begin;
  for (const bool first : {true, false}) {
    carver.move_to(begin);
    place(first);
    end = std::max(end, carver.offset());
  }
  carver.move_to(end);
}

class PairBlock final : public Mixer {
 public:
  PairBlock(const PairSources& sources, WeightReader& reader, int32_t layer)
      : scaled_columns_(scaled_columns(sources)),
        attention_(sources.attention, reader, layer, 0),
        scan_(sources.scan, reader, layer, sources.attention.mixer->mixed_columns()) {}

  const PackedWeight& first_weight() const override { return attention_.mixer->first_weight(); }

  void place(const StepLimits& limits, Carver& carver) override {
    scaled_ = carver.matrix(limits.rows, scaled_columns_, limits.activation);
    place_both(carver,
               [&](bool first) { (first ? attention_ : scan_).mixer->place(limits, carver); });
  }

  void mix(const BlockContext& context, const StepRows& step, KvCache& cache) override {
    for (const Branch* branch : {&attention_, &scan_}) {
      branch->mixer->mix(context, rows_of(*branch, scaled(context, *branch, step)), cache);
    }
  }

  void add(const BlockContext& context, const StepRows& step, const Tail& tail) override {
    HEADRACE_CHECK(tail.post_norm.empty() && tail.sum_norm.empty());
    attention_.mixer->add(
        context, rows_of(attention_, step),
        {{}, tail.scale * attention_.scales.out, {}, {}, scan_.mixer->first_weight()});
    scan_.mixer->add(context, rows_of(scan_, step),
                     {{}, tail.scale * scan_.scales.out, {}, tail.norm, tail.weight});
  }

 private:
  struct Branch {
    Branch(const PairSources::Branch& sources, WeightReader& reader, int32_t layer, int64_t first)
        : mixer(sources.mixer->load(reader, layer)),
          scales(sources.scales),
          first_column(first),
          columns(sources.mixer->mixed_columns()) {}

    std::unique_ptr<Mixer> mixer;
    BranchScales scales;
    int64_t first_column, columns;  ///< of StepRows::mixed
  };

  static StepRows rows_of(const Branch& branch, StepRows step) {
    step.mixed = step.mixed.columns(branch.first_column, branch.columns);
    return step;
  }

  StepRows scaled(const BlockContext& context, const Branch& branch, StepRows step) const {
    if (branch.scales.in == 1.0f) return step;
    const TensorView rows = scaled_.first_rows(step.rows());
    context.backend.scale(step.input, branch.scales.in, rows);
    step.input = rows;
    return step;
  }

  int64_t scaled_columns_;
  Branch attention_, scan_;
  TensorView scaled_;  // [T, scaled_columns_]
};

}  // namespace

std::vector<MatrixSource*> PairSources::matrices() {
  std::vector<MatrixSource*> out = attention.mixer->matrices();
  for (MatrixSource* source : scan.mixer->matrices()) out.push_back(source);
  return out;
}

std::vector<VectorSource*> PairSources::vectors() {
  std::vector<VectorSource*> out = attention.mixer->vectors();
  for (VectorSource* source : scan.mixer->vectors()) out.push_back(source);
  return out;
}

void PairSources::share(const RankPlace& place) {
  attention.mixer->share(place);
  scan.mixer->share(place);
}

void PairSources::measure(const StepLimits& limits, Carver& carver) const {
  carver.matrix(limits.rows, scaled_columns(*this), limits.activation);
  place_both(carver,
             [&](bool first) { (first ? attention : scan).mixer->measure(limits, carver); });
}

std::unique_ptr<Mixer> PairSources::load(WeightReader& reader, int32_t layer) const {
  return std::make_unique<PairBlock>(*this, reader, layer);
}

}  // namespace headrace
