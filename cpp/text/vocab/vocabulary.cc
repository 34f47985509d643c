#include "text/vocab/vocabulary.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "text/vocab/byte_alphabet.h"

namespace headrace::text {
namespace {

constexpr size_t kFirstSlots = 1024;
constexpr size_t kMaxProbes = 1024;  // more only happen if a file was made for it
constexpr uint32_t kSpelledHash = 0x9E3779B9;
constexpr size_t kMaxArena = UINT32_MAX;

__extension__ using Product = unsigned __int128;

uint64_t mix(uint64_t a, uint64_t b) noexcept {
  const Product product = static_cast<Product>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t load(const char* at, size_t bytes) noexcept {
  uint64_t word = 0;
  std::memcpy(&word, at, bytes);
  return word;
}

std::string quoted_token(std::string_view spelling) {
  constexpr size_t kShown = 64;
  return "\"" + std::string(spelling.substr(0, kShown)) + (spelling.size() > kShown ? "..." : "") +
         "\"";
}

}  // namespace

uint32_t Vocabulary::hash(std::string_view bytes) noexcept {
  constexpr uint64_t kFactor = 0xA0761D6478BD642F;
  constexpr uint64_t kOther = 0xE7037ED1A0B428DB;
  const char* at = bytes.data();
  size_t left = bytes.size();
  uint64_t state = left * kOther;
  for (; left > 8; left -= 8, at += 8) state = mix(state ^ load(at, 8), kFactor);
  // The rest in two loads of fixed size, which may overlap.
  uint64_t rest = 0;
  if (left >= 4) {
    rest = load(at, 4) << 32 | load(at + left - 4, 4);
  } else if (left > 0) {
    rest = static_cast<uint64_t>(static_cast<uint8_t>(at[0])) << 16 |
           static_cast<uint64_t>(static_cast<uint8_t>(at[left / 2])) << 8 |
           static_cast<uint8_t>(at[left - 1]);
  }
  return static_cast<uint32_t>(mix(state ^ rest ^ kFactor, kOther));
}

void Vocabulary::reserve(size_t tokens, size_t bytes) {
  entries_.reserve(std::min<size_t>(tokens, kMaxId + 1));
  arena_.reserve(bytes);
  while (slots_.size() * 2 < tokens * 3) grow();
}

void Vocabulary::check_id(int32_t id) const {
  if (id < 0 || id > kMaxId) {
    throw_error(ErrorCode::kCorruptFile, "the id ", id, " is not in 0..", kMaxId);
  }
  if (kind(id) != TokenKind::kNone) {
    throw_error(ErrorCode::kCorruptFile, "the id ", id,
                " is given to two tokens: ", quoted_token(spelling(id)), " is one of them");
  }
}

void Vocabulary::add(int32_t id, std::string_view spelling, TokenKind kind) {
  check_id(id);
  const size_t offset = arena_.size();
  const bool spelled = byte_level_ && !append_alphabet_bytes(spelling, &arena_);
  if (!byte_level_ || spelled) arena_.append(spelling);
  insert(id, offset, kind, spelled);
}

void Vocabulary::add_bytes(int32_t id, std::string_view bytes, TokenKind kind) {
  check_id(id);
  const size_t offset = arena_.size();
  arena_.append(bytes);
  insert(id, offset, kind, false);
}

/// What the arena has from `offset` on becomes a token.
void Vocabulary::insert(int32_t id, size_t offset, TokenKind kind, bool spelled) {
  const std::string_view stored = std::string_view(arena_).substr(offset);
  if (arena_.size() > kMaxArena) {
    throw_error(ErrorCode::kLimitExceeded, "the vocabulary's spellings take more than 4 GiB");
  }
  if ((static_cast<size_t>(count_) + 1) * 3 > slots_.size() * 2) grow();
  const uint32_t tag = hash(stored) ^ (spelled ? kSpelledHash : 0);
  const size_t mask = slots_.size() - 1;
  size_t slot = tag & mask;
  size_t probes = 0;
  for (; slots_[slot].id != kNoId; slot = (slot + 1) & mask) {
    const Entry& entry = entries_[static_cast<size_t>(slots_[slot].id)];
    if (slots_[slot].hash == tag && bytes(slots_[slot].id) == stored && entry.spelled == spelled) {
      throw_error(ErrorCode::kCorruptFile, "the token ", quoted_token(spelling(slots_[slot].id)),
                  " is there twice");
    }
    if (++probes > kMaxProbes) {
      throw_error(ErrorCode::kLimitExceeded,
                  "the vocabulary's spellings are made to collide in a hash table");
    }
  }
  slots_[slot] = Slot{tag, id};
  max_probes_ = std::max(max_probes_, probes);
  const Entry entry{static_cast<uint32_t>(offset), static_cast<uint32_t>(stored.size()), kind,
                    spelled};
  if (id == end()) {
    entries_.push_back(entry);
  } else {
    if (id > end()) entries_.resize(static_cast<size_t>(id) + 1);
    entries_[static_cast<size_t>(id)] = entry;
  }
  ++count_;
  longest_ = std::max(longest_, stored.size());
}

void Vocabulary::grow() {
  std::vector<Slot> old(std::max(kFirstSlots, slots_.size() * 2));
  old.swap(slots_);
  max_probes_ = 0;
  const size_t mask = slots_.size() - 1;
  for (const Slot& filled : old) {
    if (filled.id == kNoId) continue;
    size_t slot = filled.hash & mask;
    size_t probes = 0;
    for (; slots_[slot].id != kNoId; slot = (slot + 1) & mask) ++probes;
    slots_[slot] = filled;
    max_probes_ = std::max(max_probes_, probes);
  }
}

TokenKind Vocabulary::kind(int32_t id) const noexcept {
  return id >= 0 && id < end() ? entries_[static_cast<size_t>(id)].kind : TokenKind::kNone;
}

std::string_view Vocabulary::bytes(int32_t id) const noexcept {
  if (id < 0 || id >= end()) return {};
  const Entry& entry = entries_[static_cast<size_t>(id)];
  return {arena_.data() + entry.offset, entry.size};
}

bool Vocabulary::is_spelled(int32_t id) const noexcept {
  return id >= 0 && id < end() && entries_[static_cast<size_t>(id)].spelled;
}

std::string Vocabulary::spelling(int32_t id) const {
  const std::string_view stored = bytes(id);
  if (!byte_level_ || is_spelled(id)) return std::string(stored);
  std::string text;
  append_alphabet_spelling(stored, &text);
  return text;
}

int32_t Vocabulary::find_spelling(std::string_view spelling) const {
  if (!byte_level_) return find(spelling);
  std::string bytes;
  if (append_alphabet_bytes(spelling, &bytes)) return find(bytes);
  return find_entry(spelling, hash(spelling) ^ kSpelledHash, true);
}

int32_t Vocabulary::find(std::string_view bytes, uint32_t hash) const noexcept {
  return find_entry(bytes, hash, false);
}

int32_t Vocabulary::find_entry(std::string_view stored, uint32_t tag, bool spelled) const noexcept {
  if (slots_.empty()) return kNoId;
  const size_t mask = slots_.size() - 1;
  size_t slot = tag & mask;
  for (size_t probes = 0; probes <= max_probes_ && slots_[slot].id != kNoId;
       slot = (slot + 1) & mask, ++probes) {
    if (slots_[slot].hash == tag && bytes(slots_[slot].id) == stored &&
        is_spelled(slots_[slot].id) == spelled) {
      return slots_[slot].id;
    }
  }
  return kNoId;
}

size_t Vocabulary::memory_bytes() const noexcept {
  return arena_.capacity() + entries_.capacity() * sizeof(Entry) + slots_.capacity() * sizeof(Slot);
}

}  // namespace headrace::text
