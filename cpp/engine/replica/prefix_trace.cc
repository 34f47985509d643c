#include "engine/replica/prefix_trace.h"

#include <algorithm>
#include <array>

#include "kv/prefix_index.h"

namespace headrace::internal {

namespace {

/// `hash`, and these numbers behind what it stands for.
uint64_t mix(uint64_t hash, std::span<const uint64_t> numbers) {
  std::array<int32_t, 2> halves{};
  for (const uint64_t number : numbers) {
    halves = {static_cast<int32_t>(number), static_cast<int32_t>(number >> 32)};
    hash = PrefixIndex::hash_tokens(hash, halves);
  }
  return hash;
}

}  // namespace

std::vector<uint64_t> prefix_hashes(const SeqSpec& spec, int32_t block_size) {
  std::vector<uint64_t> out;
  const auto size = static_cast<size_t>(block_size);
  out.reserve(spec.prompt.size() / size);
  const SequenceIdentity& identity = spec.identity.sequence;
  uint64_t hash =
      mix(0, std::array{identity.adapter, static_cast<uint64_t>(uint32_t(identity.rope_len))});
  for (size_t first = 0; first + size <= spec.prompt.size(); first += size) {
    hash = PrefixIndex::hash_tokens(hash, std::span(spec.prompt).subspan(first, size));
    for (const MediaItem& item : spec.identity.media_in(first, first + size)) {
      hash = mix(hash, item.digest);
    }
    out.push_back(hash);
  }
  return out;
}

size_t PrefixTrace::match(std::span<const uint64_t> hashes) const {
  const auto unknown = [this](uint64_t hash) { return !places_.contains(hash); };
  return static_cast<size_t>(std::ranges::find_if(hashes, unknown) - hashes.begin());
}

void PrefixTrace::note(std::span<const uint64_t> hashes) {
  // The last ones first: a prefix stays longer than what hangs on it.
  for (size_t i = std::min(hashes.size(), capacity_); i-- > 0;) {
    const auto found = places_.find(hashes[i]);
    if (found != places_.end()) {
      recent_.splice(recent_.begin(), recent_, found->second);
      continue;
    }
    if (places_.size() == capacity_) {
      places_.erase(recent_.back());
      recent_.pop_back();
    }
    recent_.push_front(hashes[i]);
    places_.emplace(hashes[i], recent_.begin());
  }
}

void PrefixTrace::clear() {
  recent_.clear();
  places_.clear();
}

}  // namespace headrace::internal
