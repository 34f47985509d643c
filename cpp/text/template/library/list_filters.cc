#include <algorithm>

#include "text/template/library/arguments.h"
#include "text/template/library/letters.h"
#include "text/template/library/tables.h"
#include "text/template/run/members.h"
#include "text/template/run/operators.h"
#include "text/template/values/dict.h"

namespace headrace::text::jinja {

Value follow(Run& run, const Value& item, const Value& path, const Value& otherwise) {
  const auto step = [&](const Value& of, const Value& part) {
    run.spend(1);
    const Value value = get_item(run, of, part);
    return value.is_undefined() && is_given(otherwise) ? otherwise : value;
  };
  if (!is_given(path)) {
    return item;
  }
  if (!path.is_string()) {
    return step(item, path);
  }
  Value value = item;
  std::string_view rest = path.text();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool number = !part.empty() && part.size() < 18 &&
                        part.find_first_not_of("0123456789") == std::string_view::npos;
    int64_t place = 0;
    for (const char digit : number ? part : std::string_view()) {
      place = place * 10 + (digit - '0');
    }
    value = step(value, number ? Value::of(place) : Value::of(part));
    if (dot == std::string_view::npos) {
      return value;
    }
    rest.remove_prefix(dot + 1);
  }
}

namespace {

Value folded(Run& run, const Value& value, bool case_sensitive) {
  return value.is_string() && !case_sensitive ? lower_text(run, value) : value;
}

/// What sort compares: a list of the attributes that a path with commas names.
Value sort_key(Run& run, const Value& item, const Value& paths, bool case_sensitive) {
  if (!paths.is_string()) {
    return folded(run, follow(run, item, paths, Value()), case_sensitive);
  }
  ListBuilder parts(run);
  std::string_view rest = paths.text();
  while (true) {
    const size_t comma = rest.find(',');
    const Value part = follow(run, item, Value::of(rest.substr(0, comma)), Value());
    parts.add(folded(run, part, case_sensitive));
    if (comma == std::string_view::npos) {
      return parts.value();
    }
    rest.remove_prefix(comma + 1);
  }
}

struct Keyed {
  Value key;
  Value item;
};

/// Of both kinds of order: equal ones stay in theirs.
Value sorted_by_keys(Run& run, Keyed* items, size_t count, bool reverse) {
  std::stable_sort(items, items + count, [&](const Keyed& a, const Keyed& b) {
    run.spend(1);
    return reverse ? less(run, b.key, a.key, "<") : less(run, a.key, b.key, "<");
  });
  Value* const sorted = run.arena.array<Value>(count);
  for (size_t i = 0; i < count; ++i) {
    sorted[i] = items[i].item;
  }
  return Value::sequence(Kind::kList, sorted, count);
}

Value filter_sort(Run& run, Value self, const Given& given) {
  const Items items = all_items(run, self);
  const bool case_sensitive = flag_argument(run, given.positional[1]);
  run.spend_bytes(items.count * sizeof(Keyed));
  Keyed* const keyed = run.arena.array<Keyed>(items.count);
  for (uint32_t i = 0; i < items.count; ++i) {
    keyed[i] = {sort_key(run, items.items[i], given.positional[2], case_sensitive), items.items[i]};
  }
  return sorted_by_keys(run, keyed, items.count, flag_argument(run, given.positional[0]));
}

Value pair(Run& run, const Value& first, const Value& second, uint8_t tag = kPlain) {
  Value* const items = run.arena.array<Value>(2);
  items[0] = first;
  items[1] = second;
  Value value = Value::sequence(Kind::kTuple, items, 2);
  value.tag = tag;
  return value;
}

Value filter_dictsort(Run& run, Value self, const Given& given) {
  const std::string_view by =
      given.positional[1].is_missing() ? "key" : text_argument(given.positional[1], "by");
  if (by != "key" && by != "value") {
    fail({"You can only sort by either \"key\" or \"value\""});
  }
  if (self.is_undefined()) {
    fail_undefined(run, self);
  }
  if (self.kind != Kind::kDict) {
    fail({"AttributeError: '", type_name(self), "' object has no attribute 'items'"});
  }
  const bool case_sensitive = flag_argument(run, given.positional[0]);
  const Dict* const dict = self.dict;
  Keyed* const keyed = run.arena.array<Keyed>(dict->count);
  for (uint32_t i = 0; i < dict->count; ++i) {
    const DictEntry& entry = dict->entries[i];
    keyed[i] = {folded(run, by == "key" ? entry.key : entry.value, case_sensitive),
                pair(run, entry.key, entry.value)};
  }
  return sorted_by_keys(run, keyed, dict->count, flag_argument(run, given.positional[2]));
}

Value filter_groupby(Run& run, Value self, const Given& given) {
  const Value& path = given.positional[0];
  const Value& otherwise = given.positional[1];
  const bool case_sensitive = flag_argument(run, given.positional[2]);
  const Items items = all_items(run, self);
  Keyed* const keyed = run.arena.array<Keyed>(items.count);
  for (uint32_t i = 0; i < items.count; ++i) {
    const Value key = follow(run, items.items[i], path, otherwise);
    keyed[i] = {folded(run, key, case_sensitive), items.items[i]};
  }
  sorted_by_keys(run, keyed, items.count, false);
  ListBuilder groups(run);
  for (uint32_t begin = 0; begin < items.count;) {
    ListBuilder members(run);
    uint32_t end = begin;
    while (end < items.count && equal(run, keyed[begin].key, keyed[end].key)) {
      members.add(keyed[end++].item);
    }
    const Value name =
        case_sensitive ? keyed[begin].key : follow(run, keyed[begin].item, path, otherwise);
    groups.add(pair(run, name, members.value(), kGroup));
    begin = end;
  }
  return groups.value();
}

Value filter_unique(Run& run, Value self, const Given& given) {
  const bool case_sensitive = flag_argument(run, given.positional[0]);
  Dict* const seen = new_dict(run, 0);
  ListBuilder found(run);
  Cursor cursor(run, self);
  Value item;
  while (cursor.next(run, &item)) {
    const Value key = folded(run, follow(run, item, given.positional[1], Value()), case_sensitive);
    if (dict_get(run, seen, key) == nullptr) {
      dict_set(run, seen, key, Value());
      found.add(item);
    }
  }
  return found.iterator();
}

Value least_or_greatest(Run& run, const Value& self, const Given& given, bool greatest) {
  const bool case_sensitive = flag_argument(run, given.positional[0]);
  Cursor cursor(run, self);
  Value best;
  Value best_key;
  Value item;
  while (cursor.next(run, &item)) {
    const Value key = folded(run, follow(run, item, given.positional[1], Value()), case_sensitive);
    if (best.is_missing() ||
        (greatest ? less(run, best_key, key, ">") : less(run, key, best_key, "<"))) {
      best = item;
      best_key = key;
    }
  }
  return best.is_missing() ? undefined_hint(run, "No aggregated item, sequence was empty.") : best;
}

Value filter_min(Run& run, Value self, const Given& given) {
  return least_or_greatest(run, self, given, false);
}
Value filter_max(Run& run, Value self, const Given& given) {
  return least_or_greatest(run, self, given, true);
}

Value filter_sum(Run& run, Value self, const Given& given) {
  Value total = given.positional[1].is_missing() ? Value::of(int64_t{0}) : given.positional[1];
  if (total.is_string()) {
    fail({"TypeError: sum() can't sum strings [use ''.join(seq) instead]"});
  }
  Cursor cursor(run, self);
  Value item;
  while (cursor.next(run, &item)) {
    total = operate(run, Operation::kAdd, total, follow(run, item, given.positional[0], Value()));
  }
  return total;
}

Value filter_first(Run& run, Value self, const Given&) {
  Cursor cursor(run, self);
  Value item;
  return cursor.next(run, &item) ? item : undefined_hint(run, "No first item, sequence was empty.");
}

/// What Python can go through backward.
Items backward(Run& run, const Value& value) {
  if (value.kind == Kind::kIterator || !Cursor::can_iterate(value)) {
    fail({"TypeError: '", type_name(value), "' object is not reversible"});
  }
  const Items items = all_items(run, value);
  run.spend_bytes(items.count * sizeof(Value));
  Value* const reversed = run.arena.array<Value>(items.count);
  std::reverse_copy(items.items, items.items + items.count, reversed);
  return {reversed, items.count};
}

Value filter_last(Run& run, Value self, const Given&) {
  if (self.is_sequence() && self.size > 0) {
    return self.items[self.size - 1];
  }
  const Items items = backward(run, self);
  if (items.count == 0) {
    return undefined_hint(run, "No last item, sequence was empty.");
  }
  return self.is_markup() ? Value::of(items.items[0].text(), kMarkup) : items.items[0];
}

Value filter_reverse(Run& run, Value self, const Given&) {
  if (self.is_string()) {
    return get_slice(run, self, Value(), Value(), Value::of(int64_t{-1}));
  }
  if (!Cursor::can_iterate(self)) {
    fail({"argument must be iterable"});
  }
  if (self.kind == Kind::kIterator) {
    const Items items = all_items(run, self);
    return Value::sequence(
        Kind::kList, backward(run, Value::sequence(Kind::kList, items.items, items.count)).items,
        items.count);
  }
  const Items items = backward(run, self);
  ListBuilder list(run);
  for (uint32_t i = 0; i < items.count; ++i) {
    list.add(items.items[i]);
  }
  return list.iterator();
}

Value filter_length(Run& run, Value self, const Given&) {
  const std::optional<int64_t> length = length_of(run, self);
  if (!length) {
    fail({"TypeError: object of type '", type_name(self), "' has no len()"});
  }
  return Value::of(*length);
}

Value filter_list(Run& run, Value self, const Given&) {
  const Items items = all_items(run, self);
  return Value::sequence(Kind::kList, items.items, items.count);
}

Value filter_items(Run& run, Value self, const Given&) {
  if (!self.is_undefined() && self.kind != Kind::kDict) {
    fail({"TypeError: Can only get item pairs from a mapping."});
  }
  ListBuilder pairs(run);
  for (uint32_t i = 0; !self.is_undefined() && i < self.dict->count; ++i) {
    run.spend(1);
    pairs.add(pair(run, self.dict->entries[i].key, self.dict->entries[i].value));
  }
  return pairs.iterator();
}

Value filter_batch(Run& run, Value self, const Given& given) {
  const int64_t size = int_argument(given.positional[0], 0);
  ListBuilder batches(run);
  ListBuilder batch(run);
  Cursor cursor(run, self);
  Value item;
  while (cursor.next(run, &item)) {
    if (batch.count() == size) {
      batches.add(batch.value());
      batch = ListBuilder(run);
    }
    batch.add(item);
  }
  if (batch.count() > 0) {
    for (int64_t i = batch.count(); is_given(given.positional[1]) && i < size; ++i) {
      run.spend(1);
      batch.add(given.positional[1]);
    }
    batches.add(batch.value());
  }
  return batches.iterator();
}

Value filter_slice(Run& run, Value self, const Given& given) {
  const Items items = all_items(run, self);
  const int64_t slices = int_argument(given.positional[0], 0);
  if (slices == 0) {
    fail({"ZeroDivisionError: integer division or modulo by zero"});
  }
  const int64_t each = items.count / std::max<int64_t>(slices, 1);
  const int64_t larger = items.count % std::max<int64_t>(slices, 1);
  ListBuilder all(run);
  int64_t at = 0;
  for (int64_t i = 0; i < slices; ++i) {
    run.spend(1);
    ListBuilder slice(run);
    const int64_t end = at + each + (i < larger);
    for (; at < end; ++at) {
      run.spend(1);
      slice.add(items.items[at]);
    }
    if (i >= larger && is_given(given.positional[1])) {
      slice.add(given.positional[1]);
    }
    all.add(slice.value());
  }
  return all.iterator();
}

}  // namespace

Table list_filters() {
  static constexpr Builtin kFilters[] = {
      {"batch", filter_batch, "linecount fill_with", 1},
      {"count", filter_length},
      {"dictsort", filter_dictsort, "case_sensitive by reverse"},
      {"first", filter_first},
      {"groupby", filter_groupby, "attribute default case_sensitive", 1},
      {"items", filter_items},
      {"last", filter_last},
      {"length", filter_length},
      {"list", filter_list},
      {"max", filter_max, "case_sensitive attribute"},
      {"min", filter_min, "case_sensitive attribute"},
      {"reverse", filter_reverse},
      {"slice", filter_slice, "slices fill_with", 1},
      {"sort", filter_sort, "reverse case_sensitive attribute"},
      {"sum", filter_sum, "attribute start"},
      {"unique", filter_unique, "case_sensitive attribute"},
  };
  return kFilters;
}

}  // namespace headrace::text::jinja
