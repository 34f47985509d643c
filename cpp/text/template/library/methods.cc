#include "text/template/library/methods.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "text/template/library/arguments.h"
#include "text/template/library/tables.h"
#include "text/template/run/members.h"
#include "text/template/values/dict.h"
#include "text/template/values/loop.h"
#include "text/unicode/utf8.h"

namespace headrace::text::jinja {
namespace {

Value view(const Value& self, uint8_t tag) {
  Value value = self;
  value.kind = Kind::kView;
  value.tag = tag;
  return value;
}
Value dict_keys(Run&, Value self, const Given&) { return view(self, kKeys); }
Value dict_values(Run&, Value self, const Given&) { return view(self, kValues); }
Value dict_items(Run&, Value self, const Given&) { return view(self, kItems); }
Value same(Run&, Value self, const Given&) { return self; }

Value dict_get_method(Run& run, Value self, const Given& given) {
  if (const Value* const value = dict_get(run, self.dict, given.positional[0])) {
    return *value;
  }
  return given.positional[1].is_missing() ? Value::none() : given.positional[1];
}

Value sequence_count(Run& run, Value self, const Given& given) {
  int64_t count = 0;
  Cursor cursor(run, self);
  Value item;
  while (cursor.next(run, &item)) {
    count += equal(run, item, given.positional[0]);
  }
  return Value::of(count);
}

Value sequence_index(Run& run, Value self, const Given& given) {
  const int64_t length = *length_of(run, self);
  const auto bound = [&](const Value& value, int64_t otherwise) {
    const int64_t place = int_argument(value, otherwise);
    return place < 0 ? std::max<int64_t>(place + length, 0) : place;
  };
  const int64_t start = bound(given.positional[1], 0);
  const int64_t stop = bound(given.positional[2], length);
  Cursor cursor(run, self);
  Value item;
  for (int64_t i = 0; cursor.next(run, &item); ++i) {
    if (i >= start && i < stop && equal(run, item, given.positional[0])) {
      return Value::of(i);
    }
  }
  fail({"ValueError: ", shortened(repr_of(run, given.positional[0]).text()), " is not in ",
        type_name(self)});
}

Value loop_cycle(Run&, Value self, const Given& given) {
  if (given.count == 0) {
    fail({"TypeError: no items for cycling given"});
  }
  return given.positional[self.loop->index0 % given.count];
}

Value loop_changed(Run& run, Value self, const Given& given) {
  const Value values = Value::sequence(Kind::kTuple, given.positional, given.count);
  const bool changed = self.loop->changed.is_missing() || !equal(run, self.loop->changed, values);
  self.loop->changed = values;
  return Value::of(changed);
}

Value float_is_integer(Run&, Value self, const Given&) {
  return Value::of(std::isfinite(self.real) && std::floor(self.real) == self.real);
}

Value left_out(Run&, Value self, const Given&) {
  fail_unsupported(0, {"this method of '", type_name(self), "'"});
}

constexpr Builtin kDictMethods[] = {
    {"copy", same},
    {"fromkeys", left_out, "*"},
    {"get", dict_get_method, "key default", 1, 2},
    {"items", dict_items},
    {"keys", dict_keys},
    {"values", dict_values},
};
constexpr Builtin kListMethods[] = {
    {"copy", same},
    {"count", sequence_count, "value", 1, 1},
    {"index", sequence_index, "value start stop", 1, 3},
};
constexpr Builtin kTupleMethods[] = {
    {"count", sequence_count, "value", 1, 1},
    {"index", sequence_index, "value start stop", 1, 3},
};
constexpr Builtin kLoopMethods[] = {
    {"changed", loop_changed, "*"},
    {"cycle", loop_cycle, "*"},
};
constexpr Builtin kFloatMethods[] = {
    {"as_integer_ratio", left_out, "*"},
    {"conjugate", same},
    {"hex", left_out, "*"},
    {"is_integer", float_is_integer},
};
constexpr Builtin kIntMethods[] = {
    {"as_integer_ratio", left_out, "*"}, {"bit_count", left_out, "*"},
    {"bit_length", left_out, "*"},       {"conjugate", same},
    {"to_bytes", left_out, "*"},
};
constexpr Builtin kViewMethods[] = {
    {"isdisjoint", left_out, "*"},
};

const Builtin* find_in(Table table, std::string_view name) {
  for (const Builtin& builtin : table) {
    if (builtin.name == name) {
      return &builtin;
    }
  }
  return nullptr;
}

Value loop_property(Run& run, Loop& loop, std::string_view name) {
  const auto number = [](int64_t value) { return Value::of(value); };
  if (name == "index0") {
    return number(loop.index0);
  }
  if (name == "index") {
    return number(loop.index0 + 1);
  }
  if (name == "first") {
    return Value::of(loop.index0 == 0);
  }
  if (name == "last") {
    return Value::of(loop.peek(run).is_missing());
  }
  if (name == "length") {
    return number(loop.length(run));
  }
  if (name == "revindex") {
    return number(loop.length(run) - loop.index0);
  }
  if (name == "revindex0") {
    return number(loop.length(run) - loop.index0 - 1);
  }
  if (name == "depth" || name == "depth0") {
    return number(loop.depth0 + (name == "depth"));
  }
  if (name == "previtem") {
    return loop.index0 == 0 ? undefined_hint(run, "there is no previous item") : loop.before;
  }
  if (name == "nextitem") {
    const Value next = loop.peek(run);
    return next.is_missing() ? undefined_hint(run, "there is no next item") : next;
  }
  return Value();
}

}  // namespace

const Builtin* find_method(const Value& self, std::string_view name) {
  switch (self.kind) {
    case Kind::kString: {
      const Builtin* const method = find_in(text_methods(), name);
      return method != nullptr ? method : find_in(text_form_methods(), name);
    }
    case Kind::kDict:
      return find_in(kDictMethods, name);
    case Kind::kList:
      return find_in(kListMethods, name);
    case Kind::kTuple:
    case Kind::kRange:
      return find_in(kTupleMethods, name);
    case Kind::kLoop:
      return find_in(kLoopMethods, name);
    case Kind::kFloat:
      return find_in(kFloatMethods, name);
    case Kind::kInt:
    case Kind::kBool:
    case Kind::kBigInt:
      return find_in(kIntMethods, name);
    case Kind::kView:
      return self.tag == kValues ? nullptr : find_in(kViewMethods, name);
    default:
      return nullptr;
  }
}

bool is_refused_method(const Value& self, std::string_view name) {
  const auto any = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (self.kind == Kind::kDict) {
    return any({"clear", "pop", "popitem", "setdefault", "update"});
  }
  return self.kind == Kind::kList &&
         any({"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"});
}

Value find_property(Run& run, const Value& self, std::string_view name) {
  if (self.kind == Kind::kLoop) {
    return loop_property(run, *self.loop, name);
  }
  if (self.is_number() && (name == "real" || name == "imag")) {
    const bool real = name == "real";
    if (self.kind == Kind::kFloat) {
      return real ? self : Value::of(0.0);
    }
    return Value::of(real ? self.int_value() : int64_t{0});
  }
  if (self.is_integral() && (name == "numerator" || name == "denominator")) {
    return Value::of(name == "numerator" ? self.int_value() : int64_t{1});
  }
  if (self.kind == Kind::kRange) {
    if (name == "start" || name == "stop" || name == "step") {
      return Value::of(name == "start"  ? self.range->start
                       : name == "stop" ? self.range->stop
                                        : self.range->step);
    }
  }
  if (self.kind == Kind::kTuple && self.tag == kGroup && (name == "grouper" || name == "list")) {
    return self.items[name == "list"];
  }
  return Value();
}

}  // namespace headrace::text::jinja
