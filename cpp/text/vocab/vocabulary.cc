#include "text/vocab/vocabulary.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "text/vocab/byte_alphabet.h"

namespace headrace::text {
namespace {

constexpr size_t kFirstSlots = 1024;
constexpr size_t kMaxProbes = 1024;  // more only happen if a file was made for it
constexpr size_t kMaxArena = UINT32_MAX;

constexpr uint64_t kFactor = 0xA0761D6478BD642F;
constexpr uint64_t kOther = 0xE7037ED1A0B428DB;

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

/// Up to 8 bytes and zeros: two loads of a fixed size, which may overlap.
uint64_t load_padded(const char* at, size_t bytes) noexcept {
  if (bytes >= 8) return load(at, 8);
  if (bytes >= 4) return load(at, 4) | load(at + bytes - 4, 4) << (bytes - 4) * 8;
  if (bytes == 0) return 0;
  const auto byte = [&](size_t i) { return uint64_t{static_cast<uint8_t>(at[i])} << i * 8; };
  return byte(0) | byte(bytes / 2) | byte(bytes - 1);
}

std::string quoted_token(std::string_view spelling) {
  constexpr size_t kShown = 64;
  return "\"" + std::string(spelling.substr(0, kShown)) + (spelling.size() > kShown ? "..." : "") +
         "\"";
}

}  // namespace

uint32_t Vocabulary::hash(std::string_view bytes) noexcept {
  const char* at = bytes.data();
  size_t left = bytes.size();
  uint64_t state = left * kOther;
  for (; left > 8; left -= 8, at += 8) state = mix(state ^ load(at, 8), kFactor);
  return static_cast<uint32_t>(mix(state ^ load_padded(at, left) ^ kFactor, kOther));
}

Vocabulary::Key Vocabulary::key_of(std::string_view bytes) noexcept {
  return key_of(bytes, /*spelled=*/false);
}

Vocabulary::Key Vocabulary::key_of(std::string_view bytes, bool spelled) noexcept {
  const size_t size = bytes.size();
  Key key;
  if (size <= kShort) {
    key.text = load_padded(bytes.data(), size);
    if (size > 8) key.rest = load_padded(bytes.data() + 8, size - 8);
    key.rest |= uint64_t{size} << kKindShift;
  } else {
    key.text = hash(bytes);
    key.rest = static_cast<uint32_t>(size) | kLong;
  }
  if (spelled) key.rest |= kSpelled;
  key.hash = static_cast<uint32_t>(mix(key.text ^ kFactor, key.rest ^ kOther));
  return key;
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

void Vocabulary::append(int32_t id, std::string_view spelling, TokenKind kind) {
  check_id(id);
  const size_t offset = arena_.size();
  const bool spelled = byte_level_ && !append_alphabet_bytes(spelling, &arena_);
  if (!byte_level_ || spelled) arena_.append(spelling);
  append_stored(id, offset, kind, spelled);
}

void Vocabulary::append_bytes(int32_t id, std::string_view bytes, TokenKind kind) {
  check_id(id);
  const size_t offset = arena_.size();
  arena_.append(bytes);
  append_stored(id, offset, kind, false);
}

/// What the arena has from `offset` on becomes a token.
void Vocabulary::append_stored(int32_t id, size_t offset, TokenKind kind, bool spelled) {
  const size_t size = arena_.size() - offset;
  if (size > kMaxSize || arena_.size() > kMaxArena) {
    throw_error(ErrorCode::kLimitExceeded,
                "the vocabulary's spellings take more than 4 GiB, or one of them 16 MiB");
  }
  Entry entry;
  entry.offset = static_cast<uint32_t>(offset);
  entry.size = static_cast<uint32_t>(size) & kMaxSize;
  entry.kind = static_cast<uint8_t>(kind) & 0x7F;
  entry.spelled = spelled;
  if (id == end()) {
    entries_.push_back(entry);
  } else {
    if (id > end()) entries_.resize(static_cast<size_t>(id) + 1);
    entries_[static_cast<size_t>(id)] = entry;
  }
  ++count_;
  longest_ = std::max(longest_, size);
  waiting_.push_back(id);
}

/// A table that is made when all tokens are known has the right size at once, and is filled in
/// groups whose memory comes together.
void Vocabulary::index() {
  std::vector<int32_t> ids = std::exchange(waiting_, {});
  const auto count = static_cast<size_t>(count_);
  if (count * 4 <= slots_.size() * 3) {
    insert_all(ids);
    return;
  }
  // One by one, more are likely to come.
  const size_t room = ids.size() > count / 2 ? count : count * 2;
  slots_.assign(std::max(kFirstSlots, room * 7 / 5), Slot());
  max_probes_ = 0;
  if (ids.size() < count) {
    ids.clear();
    for (int32_t id = 0; id < end(); ++id) {
      if (kind(id) != TokenKind::kNone) ids.push_back(id);
    }
  }
  insert_all(ids);
  arena_.shrink_to_fit();
}

void Vocabulary::insert_all(std::span<const int32_t> ids) {
  constexpr size_t kGroup = 32;
  std::array<Key, kGroup> keys;
  while (!ids.empty()) {
    const auto group = ids.first(std::min(kGroup, ids.size()));
    for (size_t i = 0; i < group.size(); ++i) {
      keys[i] = key_of(bytes(group[i]), is_spelled(group[i]));
      __builtin_prefetch(&slots_[place(keys[i].hash)], 1);
    }
    for (size_t i = 0; i < group.size(); ++i) insert(group[i], keys[i]);
    ids = ids.subspan(group.size());
  }
}

bool Vocabulary::matches(const Slot& slot, const Key& key, std::string_view stored) const noexcept {
  if ((slot.rest & kKeyMask) != key.rest) return false;
  if ((key.rest & kLong) != kLong) return slot.text == key.text;
  return static_cast<uint32_t>(slot.text) == key.text &&
         std::memcmp(arena_.data() + (slot.text >> 32), stored.data(), stored.size()) == 0;
}

void Vocabulary::insert(int32_t id, const Key& key) {
  const std::string_view stored = bytes(id);
  size_t slot = place(key.hash);
  size_t probes = 0;
  for (; slots_[slot].rest != kEmpty; slot = slot + 1 == slots_.size() ? 0 : slot + 1) {
    if (matches(slots_[slot], key, stored)) {
      throw_error(ErrorCode::kCorruptFile, "the token ", quoted_token(spelling(id)),
                  " is there twice");
    }
    if (++probes > kMaxProbes) {
      throw_error(ErrorCode::kLimitExceeded,
                  "the vocabulary's spellings are made to collide in a hash table");
    }
  }
  const bool is_long = (key.rest & kLong) == kLong;
  const uint64_t offset = entries_[static_cast<size_t>(id)].offset;
  slots_[slot] = Slot{is_long ? key.text | offset << 32 : key.text,
                      key.rest | static_cast<uint64_t>(id) << kIdShift};
  max_probes_ = std::max(max_probes_, probes);
}

void Vocabulary::spell(int32_t id, std::string* text) const {
  const std::string_view stored = bytes(id);
  if (!byte_level_ || is_spelled(id)) {
    text->assign(stored);
    return;
  }
  text->clear();
  append_alphabet_spelling(stored, text);
}

int32_t Vocabulary::find_spelling(std::string_view spelling) const {
  if (!byte_level_) return find(spelling);
  std::string bytes;
  if (append_alphabet_bytes(spelling, &bytes)) return find(bytes);
  return find(spelling, key_of(spelling, /*spelled=*/true));
}

int32_t Vocabulary::find(std::string_view bytes, const Key& key) const noexcept {
  if (slots_.empty()) return kNoId;
  size_t slot = place(key.hash);
  for (size_t probes = 0; probes <= max_probes_ && slots_[slot].rest != kEmpty; ++probes) {
    if (matches(slots_[slot], key, bytes))
      return static_cast<int32_t>(slots_[slot].rest >> kIdShift);
    slot = slot + 1 == slots_.size() ? 0 : slot + 1;
  }
  return kNoId;
}

size_t Vocabulary::memory_bytes() const noexcept {
  return arena_.capacity() + entries_.capacity() * sizeof(Entry) + slots_.capacity() * sizeof(Slot);
}

}  // namespace headrace::text
