#include "text/template/values/loop.h"

namespace headrace::text::jinja {

Value Loop::read(Run& run) {
  Value item;
  while (cursor.next(run, &item)) {
    if (filter.takes == nullptr || filter.takes(filter.context, item)) {
      return item;
    }
  }
  return Value();
}

bool Loop::advance(Run& run) {
  const Value next = after.is_missing() ? read(run) : after;
  after = Value();
  if (next.is_missing()) {
    return false;
  }
  ++index0;
  before = current;
  current = next;
  return true;
}

Value Loop::peek(Run& run) {
  if (after.is_missing()) {
    after = read(run);
  }
  return after;
}

int64_t Loop::length(Run& run) {
  if (known_length) {
    return *known_length;
  }
  if (filter.takes == nullptr && over.kind != Kind::kIterator) {
    known_length = *length_of(run, over);
    return *known_length;
  }
  // The rest is read to be counted.
  ListBuilder rest(run);
  for (Value item = read(run); !item.is_missing(); item = read(run)) {
    rest.add(item);
  }
  known_length = rest.count() + index0 + 1 + (after.is_missing() ? 0 : 1);
  over = rest.iterator();
  cursor = Cursor(run, over);
  filter = {};
  return *known_length;
}

}  // namespace headrace::text::jinja
