#include "engine/speculator.h"

#include <algorithm>

namespace headrace::internal {

Speculator::Speculator(const SpeculativeOptions& options)
    : options_(options), costs_(static_cast<size_t>(options.num_speculative_tokens)) {}

std::unique_ptr<Speculation> Speculator::start(std::span<const int32_t> prompt) const {
  return std::make_unique<Speculation>(
      Speculation{{options_.min_ngram_size, options_.max_ngram_size, prompt}, {}, {}});
}

// What a guess adds to a step is paid by every request in it.
void Speculator::note_step(int32_t decodes, int32_t drafts, bool pure, double seconds) {
  if (pure) cost_.observe(decodes + drafts, seconds);
  cost_each_ = drafts > 0 ? decodes * cost_.extra(decodes, drafts) / drafts : 0;
  for (size_t i = 0; i < costs_.size(); ++i) {
    costs_[i] = decodes * cost_.extra(decodes, static_cast<int32_t>(i) + 1);
    if (i > 0) costs_[i] = std::max(costs_[i], costs_[i - 1]);
  }
}

void Speculator::note_result(Speculation& request, int32_t computed, int32_t confirmed) const {
  request.gate.record(computed, confirmed, computed * cost_each_);
}

void Speculator::append(Speculation& request, std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) request.lookup.append(token);
}

int32_t Speculator::guess(Speculation& request) const {
  request.lookup.guess(request.gate.allow(costs_), request.drafts);
  return static_cast<int32_t>(request.drafts.size());
}

}  // namespace headrace::internal
