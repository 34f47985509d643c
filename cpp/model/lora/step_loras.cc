#include "model/lora/step_loras.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace headrace {

StepLoras::StepLoras(int32_t max_rows, int32_t max_loras)
    : max_loras_(static_cast<size_t>(max_loras)) {
  if (max_loras == 0) return;
  for (auto* rows : {&step_rows_, &chosen_, &rows_}) rows->reserve(static_cast<size_t>(max_rows));
  adapters_.reserve(max_loras_);
  ends_.reserve(max_loras_);
  groups_.reserve(max_loras_);
}

void StepLoras::begin(std::span<const SeqSlice> seqs,
                      std::span<const LoraAdapter* const> adapters) {
  adapters_.clear();
  step_rows_.clear();
  HEADRACE_CHECK(adapters.size() <= max_loras_, adapters.size());
  for (const SeqSlice& seq : seqs) {
    HEADRACE_CHECK(seq.adapter >= kNoAdapter && std::cmp_less(seq.adapter, adapters.size()),
                   seq.adapter, " of ", adapters.size());
  }
  if (adapters.empty()) return;
  HEADRACE_CHECK(std::ranges::count(adapters, nullptr) == 0);
  adapters_.assign(adapters.begin(), adapters.end());
  for (const SeqSlice& seq : seqs) {
    step_rows_.insert(step_rows_.end(), static_cast<size_t>(seq.num_rows), seq.adapter);
  }
  chosen_ = step_rows_;
  sort_rows();
}

void StepLoras::choose(std::span<const int32_t> rows) {
  if (adapters_.empty()) return;
  chosen_.clear();
  for (const int32_t row : rows) chosen_.push_back(step_rows_[static_cast<size_t>(row)]);
  sort_rows();
}

void StepLoras::sort_rows() {
  rows_.clear();
  ends_.clear();
  for (size_t number = 0; number < adapters_.size(); ++number) {
    for (size_t i = 0; i < chosen_.size(); ++i) {
      if (chosen_[i] == static_cast<int32_t>(number)) rows_.push_back(static_cast<int32_t>(i));
    }
    ends_.push_back(rows_.size());
  }
}

std::span<const LoraGroup> StepLoras::groups(int32_t site) {
  groups_.clear();
  if (site == kNoSite) return groups_;
  const std::span<const int32_t> rows = rows_;
  size_t begin = 0;
  for (size_t i = 0; i < adapters_.size(); ++i) {
    const PackedLora* lora = adapters_[i]->linear(site);
    const size_t count = ends_[i] - begin;
    if (lora != nullptr && count > 0) groups_.push_back({lora, rows.subspan(begin, count)});
    begin = ends_[i];
  }
  return groups_;
}

}  // namespace headrace
