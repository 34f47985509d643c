#pragma once

// Python's dict: keys in the order in which they came.

#include <cstdint>
#include <string_view>

#include "text/template/values/run.h"
#include "text/template/values/value.h"

namespace headrace::text::jinja {

struct DictEntry {
  Value key;
  Value value;
  uint64_t hash = 0;
};

struct Dict {
  DictEntry* entries = nullptr;
  uint32_t count = 0;
  uint32_t capacity = 0;
  uint32_t* index = nullptr;  ///< places + 1 in entries, by hash; null while there are few
  uint32_t index_size = 0;    ///< a power of two
};

/// Throws Fault if Python can't hash it (a list, a dict).
uint64_t hash_of(Run& run, const Value& value);
uint64_t hash_of_text(std::string_view text) noexcept;

/// With room for so many.
Dict* new_dict(Run& run, size_t count);
void dict_set(Run& run, Dict* dict, const Value& key, const Value& value);
/// Null if there is none.
const Value* dict_get(Run& run, const Dict* dict, const Value& key);
const Value* dict_get(Run& run, const Dict* dict, std::string_view key);

}  // namespace headrace::text::jinja
