#include "cpp/sched/fake_model.h"

#include <algorithm>
#include <utility>

namespace headrace::fake {

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0xbf58476d1ce4e5b9u;
  return hash ^ (hash >> 29);
}

uint64_t stored_value(const SeqSpec& spec, uint64_t previous, int32_t position, int32_t token,
                      int32_t rope_len) {
  const int32_t seen_len = spec.identity.sequence.rope_len > 0 ? rope_len : 0;
  uint64_t value =
      mix(mix(previous, static_cast<uint64_t>(token) + 1), static_cast<uint64_t>(seen_len));
  if (spec.identity.media == nullptr) return value;
  for (const MediaItem& item : *spec.identity.media) {
    if (position < item.first || position >= item.last) continue;
    value = mix(mix(value, item.digest[3]), static_cast<uint64_t>(position - item.first));
  }
  return value;
}

uint64_t first_value(const SeqSpec& spec) { return mix(11, spec.identity.sequence.adapter); }

int32_t choose(uint64_t all_values, const SeqSpec& spec, int32_t num_output) {
  auto token = static_cast<int32_t>(all_values % kVocab);
  const auto masked = [&] {
    return num_output < spec.min_tokens && std::ranges::count(spec.end_tokens, token) > 0;
  };
  while (masked()) token = (token + 1) % kVocab;
  return token;
}

namespace {

/// Of the last `window` values; 0: of all.
uint64_t hash_last(std::span<const uint64_t> values, int32_t window) {
  if (window > 0 && std::cmp_less(window, values.size())) {
    values = values.last(static_cast<size_t>(window));
  }
  uint64_t all = 0;
  for (const uint64_t value : values) all = mix(all, value);
  return all;
}

}  // namespace

Finished run_alone(const SeqSpec& spec, int32_t window) {
  Finished out;
  if (spec.max_tokens == 0) {
    out.end = SeqEnd::kPrompt;
    return out;
  }
  const auto prompt_len = static_cast<int32_t>(spec.prompt.size());
  uint64_t last = first_value(spec);
  std::vector<uint64_t> values;
  for (int32_t p = 0; p < prompt_len; ++p) {
    const int32_t token = spec.prompt[static_cast<size_t>(p)];
    values.push_back(last = stored_value(spec, last, p, token, prompt_len));
  }
  std::vector<int32_t> text = spec.stop_sequences_anywhere ? spec.prompt : std::vector<int32_t>();
  while (true) {
    const int32_t token =
        choose(hash_last(values, window), spec, static_cast<int32_t>(out.output.size()));
    out.output.push_back(token);
    text.push_back(token);
    const auto count = static_cast<int32_t>(out.output.size());
    if (count >= spec.min_tokens && std::ranges::count(spec.end_tokens, token) > 0) {
      out.end = SeqEnd::kStopToken;
    }
    for (const auto& stop : spec.stop_sequences) {
      const auto n = static_cast<int32_t>(stop.size());
      if (count < spec.min_tokens && !spec.stop_sequences_anywhere) continue;
      if (out.end == SeqEnd::kNone && stop.size() <= text.size() &&
          std::equal(stop.begin(), stop.end(), text.end() - n)) {
        out.end = SeqEnd::kStopSequence;
      }
    }
    if (out.end == SeqEnd::kNone && count == spec.max_tokens) out.end = SeqEnd::kLength;
    if (out.end != SeqEnd::kNone) return out;
    const int32_t position = prompt_len + count - 1;
    values.push_back(last = stored_value(spec, last, position, token, position + 1));
  }
}

uint64_t KvStore::read(std::span<const Table> tables, int32_t position) {
  std::vector<uint64_t> values;
  for (int32_t p = first_read(0, position); p <= position; ++p) {
    values.push_back(at(tables.front(), p));
  }
  uint64_t all = hash_last(values, 0);
  for (size_t g = 1; g < windows_.size(); ++g) {
    for (int32_t p = first_read(g, position); p <= position; ++p) {
      const int32_t known = p - first_read(0, position);
      const uint64_t value = at(tables[g], p);
      if (known >= 0 && value != values[static_cast<size_t>(known)]) all = mix(all, value);
    }
  }
  return all;
}

void KvStore::copy(std::span<const BlockCopy> copies) {
  for (const BlockCopy& copy : copies) {
    const auto [own, host] = ends_of(copy);
    std::ranges::copy(copy.to_host ? own : host, (copy.to_host ? host : own).begin());
  }
}

/// What a copy has in the cache, and what in host memory.
std::pair<std::span<uint64_t>, std::span<uint64_t>> KvStore::ends_of(const BlockCopy& copy) {
  if (!copy.is_state) return {block(values_, copy.block), block(host_values_, copy.host_block)};
  const auto host_slot = static_cast<size_t>(copy.host_block);
  return {std::span(&slot(copy.block), 1), std::span(&host_slots_.at(host_slot), 1)};
}

void KvStore::spoil(std::span<const BlockCopy> copies) {
  for (const BlockCopy& copy : copies) {
    const auto [own, host] = ends_of(copy);
    std::ranges::fill(copy.to_host ? host : own, ~uint64_t{1});
  }
}

namespace {

uint64_t value_before(const PlannedSeq& seq, KvStore& kv, const SeqSpec& spec, int32_t position) {
  if (!kv.has_states() || position > seq.start_pos) {
    return position == 0 ? first_value(spec) : kv.before(seq.tables, position);
  }
  return seq.state_in == kZeroState ? first_value(spec) : kv.slot(seq.state_in);
}

/// That gets the state behind a row of a slice; kZeroState: none.
int32_t slot_behind(const PlannedSeq& seq, int32_t row) {
  if (row == seq.num_tokens + seq.num_drafts - 1) return seq.state_out;
  const auto save = std::ranges::find(seq.saves, row, &StateSave::row);
  return save == seq.saves.end() ? kZeroState : save->slot;
}

}  // namespace

void compute_row(const PlannedSeq& seq, KvStore& kv, const SeqSpec& spec, int32_t position,
                 int32_t token, int32_t rope_len) {
  const uint64_t value =
      stored_value(spec, value_before(seq, kv, spec, position), position, token, rope_len);
  kv.write(seq.tables, position, value);
  const int32_t slot = slot_behind(seq, position - seq.start_pos);
  if (slot != kZeroState) kv.slot(slot) = value;
}

std::vector<uint64_t> run_step(const StepPlan& plan, KvStore& kv,
                               const std::function<const SeqSpec&(SeqId)>& spec_of,
                               const RopeLen& rope_len) {
  for (const PlannedSeq& seq : plan.seqs) {
    const SeqSpec& spec = spec_of(seq.id);
    for (int32_t i = 0; i < seq.num_tokens; ++i) {
      const int32_t p = seq.start_pos + i;
      compute_row(seq, kv, spec, p, seq.tokens[static_cast<size_t>(i)], rope_len(seq.id, p));
    }
  }
  std::vector<uint64_t> out;
  for (const PlannedSeq& seq : plan.seqs) {
    out.push_back(kv.read(seq.tables, seq.start_pos + seq.num_tokens - 1));
    // The first row reads the most of what is about to be given back.
    kv.read(seq.tables, seq.start_pos);
  }
  return out;
}

}  // namespace headrace::fake
