#include "text/template/run/members.h"

#include <algorithm>

#include "text/template/library/methods.h"
#include "text/template/values/chars.h"
#include "text/template/values/compare.h"
#include "text/template/values/dict.h"

namespace headrace::text::jinja {
namespace {

Value make_undefined(Run& run, const Undefined& about) {
  Value value;
  value.kind = Kind::kUndefined;
  value.undefined = run.arena.make<Undefined>(about);
  return value;
}

/// What each object of Python's has, and the sandbox refuses.
bool is_of_every_object(std::string_view name) noexcept {
  static constexpr std::string_view kNames[] = {
      "__class__",   "__delattr__", "__dir__",           "__doc__",         "__eq__",
      "__format__",  "__ge__",      "__getattribute__",  "__getstate__",    "__gt__",
      "__hash__",    "__init__",    "__init_subclass__", "__le__",          "__lt__",
      "__ne__",      "__new__",     "__reduce__",        "__reduce_ex__",   "__repr__",
      "__setattr__", "__sizeof__",  "__str__",           "__subclasshook__"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

/// Missing if there is none.
Value find_attribute(Run& run, const Value& of, std::string_view name) {
  if (of.is_undefined() && !is_of_every_object(name)) {
    fail_undefined(run, of);
  }
  if (of.kind == Kind::kNamespace) {
    // Only what it was given counts, and names with an underscore are private.
    const Value* const value = dict_get(run, of.names, name);
    if (value == nullptr || name.substr(0, 1) != "_") {
      return value != nullptr ? *value : Value();
    }
  } else if (name.substr(0, 2) != "__") {
    if (const Builtin* const method = find_method(of, name)) {
      Value value;
      value.kind = Kind::kMethod;
      Method* const bound = run.arena.make<Method>();
      bound->self = of;
      bound->function = method;
      value.method = bound;
      return value;
    }
    if (!is_refused_method(of, name)) {
      return find_property(run, of, name);
    }
  } else if (!is_of_every_object(name)) {
    return Value();
  }
  Builder hint(run);
  hint.append("access to attribute '");
  hint.append(name);
  hint.append("' of '");
  hint.append(type_name(of));
  hint.append("' object is unsafe.");
  return undefined_hint(run, hint.view());
}

Value item_at(Run& run, const Value& of, int64_t place) {
  const std::optional<int64_t> length = of.is_string() ? std::nullopt : length_of(run, of);
  if (of.is_string()) {
    const std::string_view text = of.text();
    run.spend_bytes(text.size());
    const int64_t count = static_cast<int64_t>(char_count(text));
    const int64_t at = place < 0 ? place + count : place;
    if (at < 0 || at >= count) {
      return Value();
    }
    const size_t start = byte_of_char(text, static_cast<size_t>(at));
    return Value::of(text.substr(start, utf8_size(text[start])), of.tag);
  }
  const int64_t at = place < 0 ? place + *length : place;
  if (at < 0 || at >= *length) {
    return Value();
  }
  return of.is_sequence() ? of.items[at] : Value::of(of.range->start + of.range->step * at);
}

/// of[item] without attributes: missing if there is none.
Value find_item(Run& run, const Value& of, const Value& item) {
  switch (of.kind) {
    case Kind::kUndefined:
      fail_undefined(run, of);
    case Kind::kDict: {
      if (item.kind == Kind::kList || item.kind == Kind::kDict || item.kind == Kind::kView) {
        return Value();  // no key
      }
      const Value* const value =
          item.is_string() ? dict_get(run, of.dict, item.text()) : dict_get(run, of.dict, item);
      return value != nullptr ? *value : Value();
    }
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return item.is_integral() ? item_at(run, of, item.int_value()) : Value();
    default:
      return Value();
  }
}

}  // namespace

Value undefined_member(Run& run, const Value& of, const Value& name) {
  Undefined about;
  about.of = of;
  about.name = name;
  return make_undefined(run, about);
}

Value undefined_named(Run& run, std::string_view name) {
  return undefined_member(run, Value(), Value::of(name));
}

Value undefined_hint(Run& run, std::string_view hint) {
  Undefined about;
  about.hint = hint;
  return make_undefined(run, about);
}

Value get_attribute(Run& run, const Value& of, std::string_view name) {
  Value value = find_attribute(run, of, name);
  if (value.is_missing() && of.kind == Kind::kDict) {
    if (const Value* const member = dict_get(run, of.dict, name)) {
      value = *member;
    }
  }
  return value.is_missing() ? undefined_member(run, of, Value::of(name)) : value;
}

Value get_item(Run& run, const Value& of, const Value& item) {
  Value value = find_item(run, of, item);
  if (value.is_missing() && item.is_string()) {
    value = find_attribute(run, of, item.text());
  }
  return value.is_missing() ? undefined_member(run, of, item) : value;
}

SlicePlaces slice_places(int64_t length, const Value& start, const Value& stop, const Value& step) {
  const auto number = [](const Value& value, int64_t otherwise) {
    if (value.is_missing() || value.is_none()) {
      return otherwise;
    }
    if (!value.is_integral()) {
      fail({"TypeError: slice indices must be integers or None or have an __index__ method"});
    }
    return value.int_value();
  };
  SlicePlaces places;
  places.step = number(step, 1);
  if (places.step == 0) {
    fail({"ValueError: slice step cannot be zero"});
  }
  const bool backward = places.step < 0;
  const int64_t lowest = backward ? -1 : 0;
  const int64_t highest = backward ? length - 1 : length;
  const auto bound = [&](int64_t value) {
    return std::clamp(value < 0 ? std::max(value, -length - 1) + length : value, lowest, highest);
  };
  const bool from_end = start.is_missing() || start.is_none();
  const bool to_end = stop.is_missing() || stop.is_none();
  places.start = from_end ? (backward ? highest : 0) : bound(number(start, 0));
  const int64_t end = to_end ? (backward ? -1 : length) : bound(number(stop, 0));
  places.stop = end;
  const int64_t distance = backward ? places.start - end : end - places.start;
  if (distance > 0) {
    // The step's size may be 2^63.
    const uint64_t size = backward ? uint64_t{0} - static_cast<uint64_t>(places.step)
                                   : static_cast<uint64_t>(places.step);
    places.count = static_cast<int64_t>((static_cast<uint64_t>(distance) - 1) / size + 1);
  }
  return places;
}

namespace {

Value text_slice(Run& run, const Value& of, const Value& start, const Value& stop,
                 const Value& step) {
  const std::string_view text = of.text();
  run.spend_bytes(text.size());
  const SlicePlaces places =
      slice_places(static_cast<int64_t>(char_count(text)), start, stop, step);
  if (places.count == 0) {
    return Value::of(std::string_view(), of.tag);
  }
  size_t at = byte_of_char(text, static_cast<size_t>(places.start));
  if (places.step == 1) {
    const std::string_view rest = text.substr(at);
    return Value::of(rest.substr(0, byte_of_char(rest, static_cast<size_t>(places.count))), of.tag);
  }
  Builder out(run);
  for (int64_t i = 0; i < places.count; ++i) {
    out.append(text.substr(at, utf8_size(text[at])));
    if (i + 1 == places.count) {
      break;
    }
    for (int64_t moved = 0; moved != places.step; moved += places.step < 0 ? -1 : 1) {
      at = places.step < 0 ? char_before(text, at) : at + utf8_size(text[at]);
    }
  }
  return out.value(of.tag);
}

}  // namespace

Value get_slice(Run& run, const Value& of, const Value& start, const Value& stop,
                const Value& step) {
  if (of.is_string()) {
    return text_slice(run, of, start, stop, step);
  }
  if (of.is_undefined()) {
    fail_undefined(run, of);
  }
  if (of.kind == Kind::kDict) {
    fail({"TypeError: unhashable type: 'slice'"});
  }
  if (!of.is_sequence() && of.kind != Kind::kRange) {
    fail({"TypeError: '", type_name(of), "' object is not subscriptable"});
  }
  const int64_t length = *length_of(run, of);
  const SlicePlaces places = slice_places(length, start, stop, step);
  if (of.kind == Kind::kRange) {
    Range* const range = run.arena.make<Range>(*of.range);
    int64_t start_by = 0, stop_by = 0;
    if (__builtin_mul_overflow(of.range->step, places.start, &start_by) ||
        __builtin_add_overflow(of.range->start, start_by, &range->start) ||
        __builtin_mul_overflow(of.range->step, places.step, &range->step) ||
        __builtin_mul_overflow(of.range->step, places.stop, &stop_by) ||
        __builtin_add_overflow(of.range->start, stop_by, &range->stop)) {
      fail_big_integer();
    }
    range->count = static_cast<uint32_t>(places.count);
    Value value = of;
    value.range = range;
    return value;
  }
  if (places.step == 1) {
    return Value::sequence(of.kind, of.items + places.start, static_cast<size_t>(places.count));
  }
  run.spend_bytes(static_cast<uint64_t>(places.count) * sizeof(Value));
  Value* const items = run.arena.array<Value>(static_cast<size_t>(places.count));
  for (int64_t i = 0; i < places.count; ++i) {
    items[i] = of.items[places.start + i * places.step];
  }
  return Value::sequence(of.kind, items, static_cast<size_t>(places.count));
}

}  // namespace headrace::text::jinja
