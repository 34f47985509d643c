#include "text/template/values/chars.h"
#include "text/template/values/compare.h"
#include "text/template/values/dict.h"
#include "text/template/values/loop.h"

namespace headrace::text::jinja {

std::optional<int64_t> length_of(Run& run, const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      run.spend_bytes(value.size);
      return static_cast<int64_t>(char_count(value.text()));
    case Kind::kList:
    case Kind::kTuple:
      return value.size;
    case Kind::kDict:
    case Kind::kView:
      return value.dict->count;
    case Kind::kRange:
      return value.range->count;
    case Kind::kLoop:
      return value.loop->length(run);
    default:
      return std::nullopt;
  }
}

bool Cursor::can_iterate(const Value& value) noexcept {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kView:
    case Kind::kRange:
    case Kind::kIterator:
      return true;
    default:
      return false;
  }
}

Cursor::Cursor(Run&, const Value& value) : over_(value) {
  if (value.kind == Kind::kLoop) {
    fail_unsupported(0, {"going through 'loop' itself"});
  }
  if (!can_iterate(value)) {
    fail({"TypeError: '", type_name(value), "' object is not iterable"});
  }
}

size_t Cursor::expected() const noexcept {
  switch (over_.kind) {
    case Kind::kList:
    case Kind::kTuple:
      return over_.size;
    case Kind::kDict:
    case Kind::kView:
      return over_.dict->count;
    case Kind::kRange:
      return over_.range->count;
    default:
      return 0;
  }
}

bool Cursor::next(Run& run, Value* item) {
  run.spend(1);
  switch (over_.kind) {
    case Kind::kString: {
      if (at_ >= over_.size) {
        return false;
      }
      const size_t size = utf8_size(over_.chars[at_]);
      *item = Value::of(over_.text().substr(at_, size));
      at_ += static_cast<uint32_t>(size);
      return true;
    }
    case Kind::kList:
    case Kind::kTuple:
      if (at_ >= over_.size) {
        return false;
      }
      *item = over_.items[at_++];
      return true;
    case Kind::kDict:
    case Kind::kView: {
      if (at_ >= over_.dict->count) {
        return false;
      }
      const DictEntry& entry = over_.dict->entries[at_++];
      if (over_.kind == Kind::kView && over_.tag == kItems) {
        Value* const pair = run.arena.array<Value>(2);
        pair[0] = entry.key;
        pair[1] = entry.value;
        *item = Value::sequence(Kind::kTuple, pair, 2);
      } else {
        *item = over_.kind == Kind::kView && over_.tag == kValues ? entry.value : entry.key;
      }
      return true;
    }
    case Kind::kRange:
      if (at_ >= over_.range->count) {
        return false;
      }
      *item = Value::of(over_.range->start + over_.range->step * static_cast<int64_t>(at_++));
      return true;
    case Kind::kIterator:
      if (over_.iterator->at >= over_.iterator->count) {
        return false;
      }
      *item = over_.iterator->items[over_.iterator->at++];
      return true;
    default:
      return false;
  }
}

Items all_items(Run& run, const Value& value) {
  if (value.is_sequence()) {
    return {value.items, value.size};
  }
  Cursor cursor(run, value);
  ListBuilder list(run);
  Value item;
  while (cursor.next(run, &item)) {
    list.add(item);
  }
  return {list.items(), list.count()};
}

void ListBuilder::grow() {
  const uint32_t capacity = capacity_ < 4 ? 4 : capacity_ * 2;
  run_->spend_bytes(capacity * sizeof(Value));
  Value* const items = run_->arena.array<Value>(capacity);
  for (uint32_t i = 0; i < count_; ++i) {
    items[i] = items_[i];
  }
  items_ = items;
  capacity_ = capacity;
}

Value ListBuilder::iterator() {
  Iterator* const iterator = run_->arena.make<Iterator>();
  iterator->items = items_;
  iterator->count = count_;
  Value value;
  value.kind = Kind::kIterator;
  value.iterator = iterator;
  return value;
}

}  // namespace headrace::text::jinja
