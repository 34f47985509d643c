#include "text/template/values/dict.h"

#include <bit>
#include <cmath>

#include "text/template/values/compare.h"

namespace headrace::text::jinja {
namespace {

constexpr uint32_t kFew = 8;

uint64_t mixed(uint64_t value) noexcept {
  value ^= value >> 32;
  value *= 0x9E3779B97F4A7C15u;
  value ^= value >> 29;
  value *= 0xBF58476D1CE4E5B9u;
  return value ^ value >> 32;
}

void add_to_index(Run& run, Dict* dict, uint32_t place) {
  const uint32_t mask = dict->index_size - 1;
  uint32_t at = static_cast<uint32_t>(dict->entries[place].hash) & mask;
  while (dict->index[at] != 0) {
    run.spend(1);
    at = (at + 1) & mask;
  }
  dict->index[at] = place + 1;
}

void grow(Run& run, Dict* dict) {
  const uint32_t capacity = dict->capacity < 4 ? 4 : dict->capacity * 2;
  run.spend_bytes(capacity * sizeof(DictEntry));
  DictEntry* const entries = run.arena.array<DictEntry>(capacity);
  for (uint32_t i = 0; i < dict->count; ++i) {
    entries[i] = dict->entries[i];
  }
  dict->entries = entries;
  dict->capacity = capacity;
  if (capacity > kFew) {
    dict->index_size = std::bit_ceil(capacity * 2);
    dict->index = run.arena.array<uint32_t>(dict->index_size);
    for (uint32_t i = 0; i < dict->count; ++i) {
      add_to_index(run, dict, i);
    }
  }
}

bool same_key(Run& run, const DictEntry& entry, uint64_t hash, const Value& key) {
  if (entry.hash != hash) {
    return false;
  }
  if (entry.key.is_string() && key.is_string()) {
    run.spend_bytes(key.size);
    return entry.key.text() == key.text();
  }
  return equal(run, entry.key, key);
}

DictEntry* find(Run& run, const Dict* dict, uint64_t hash, const Value& key) {
  if (dict->index == nullptr) {
    for (uint32_t i = 0; i < dict->count; ++i) {
      if (same_key(run, dict->entries[i], hash, key)) {
        return dict->entries + i;
      }
    }
    return nullptr;
  }
  const uint32_t mask = dict->index_size - 1;
  for (uint32_t at = static_cast<uint32_t>(hash) & mask; dict->index[at] != 0;
       at = (at + 1) & mask) {
    run.spend(1);
    DictEntry* const entry = dict->entries + dict->index[at] - 1;
    if (same_key(run, *entry, hash, key)) {
      return entry;
    }
  }
  return nullptr;
}

uint64_t hash_of_number(const Value& value) noexcept {
  if (value.is_integral()) {
    return mixed(static_cast<uint64_t>(value.int_value()));
  }
  const double real = value.real;
  if (real >= -9.2e18 && real <= 9.2e18 && std::floor(real) == real) {
    return mixed(static_cast<uint64_t>(static_cast<int64_t>(real)));
  }
  return mixed(std::bit_cast<uint64_t>(real));
}

}  // namespace

uint64_t hash_of_text(std::string_view text) noexcept {
  uint64_t hash = 0x243F6A8885A308D3u ^ text.size();
  while (text.size() >= 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data(), 8);
    hash = (std::rotl(hash, 5) ^ word) * 0x9E3779B97F4A7C15u;
    text.remove_prefix(8);
  }
  uint64_t word = 0;
  if (!text.empty()) {
    std::memcpy(&word, text.data(), text.size());
  }
  return mixed((std::rotl(hash, 5) ^ word) * 0x9E3779B97F4A7C15u);
}

uint64_t hash_of(Run& run, const Value& value) {
  switch (value.kind) {
    case Kind::kString:
    case Kind::kBigInt:
      run.spend_bytes(value.size);
      return hash_of_text(value.text());
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return hash_of_number(value);
    case Kind::kTuple: {
      const Deeper deeper(run);
      uint64_t hash = value.size;
      for (uint32_t i = 0; i < value.size; ++i) {
        run.spend(1);
        hash = mixed(hash * 31 + hash_of(run, value.items[i]));
      }
      return hash;
    }
    case Kind::kNone:
    case Kind::kUndefined:
      return static_cast<uint64_t>(value.kind);
    case Kind::kList:
    case Kind::kDict:
    case Kind::kView:
    case Kind::kMissing:
      fail({"TypeError: unhashable type: '", type_name(value), "'"});
    default:
      // Others are equal only to themselves. Their addresses differ from one rendering to the next,
      // and steps must not.
      return mixed(static_cast<uint64_t>(value.kind));
  }
}

Dict* new_dict(Run& run, size_t count) {
  Dict* const dict = run.arena.make<Dict>();
  if (count > 0 && count <= kFew) {
    dict->entries = run.arena.array<DictEntry>(count);
    dict->capacity = static_cast<uint32_t>(count);
  }
  return dict;
}

void dict_set(Run& run, Dict* dict, const Value& key, const Value& value) {
  const uint64_t hash = hash_of(run, key);
  if (DictEntry* const entry = find(run, dict, hash, key)) {
    entry->value = value;
    return;
  }
  if (dict->count == dict->capacity) {
    grow(run, dict);
  }
  dict->entries[dict->count] = {key, value, hash};
  ++dict->count;
  if (dict->index != nullptr) {
    add_to_index(run, dict, dict->count - 1);
  }
}

const Value* dict_get(Run& run, const Dict* dict, const Value& key) {
  const DictEntry* const entry = find(run, dict, hash_of(run, key), key);
  return entry != nullptr ? &entry->value : nullptr;
}

const Value* dict_get(Run& run, const Dict* dict, std::string_view key) {
  run.spend(key.size() / 16);
  if (dict->index == nullptr) {
    for (uint32_t i = 0; i < dict->count; ++i) {
      const Value& mine = dict->entries[i].key;
      if (mine.is_string() && mine.text() == key) {
        return &dict->entries[i].value;
      }
    }
    return nullptr;
  }
  const DictEntry* const entry = find(run, dict, hash_of_text(key), Value::of(key));
  return entry != nullptr ? &entry->value : nullptr;
}

}  // namespace headrace::text::jinja
