#include "text/template/library/arguments.h"
#include "text/template/library/methods.h"
#include "text/template/library/tables.h"
#include "text/template/run/members.h"

namespace headrace::text::jinja {
namespace {

Value filter_default(Run& run, Value self, const Given& given) {
  const bool falsy = flag_argument(run, given.positional[1]) && !truth(run, self);
  if (!self.is_undefined() && !falsy) {
    return self;
  }
  return given.positional[0].is_missing() ? Value::of("") : given.positional[0];
}

Value filter_attr(Run& run, Value self, const Given& given) {
  const std::string_view name = text_argument(given.positional[0], "an attribute's name");
  // Attributes, not keys.
  if (self.kind == Kind::kDict && !is_refused_method(self, name) &&
      find_method(self, name) == nullptr) {
    return undefined_member(run, self, given.positional[0]);
  }
  return get_attribute(run, self, name);
}

/// A filter or test that a name tells.
const Builtin& found(Run& run, const Value& name, bool filter) {
  const Builtin* builtin = nullptr;
  if (name.is_string()) {
    builtin = filter ? find_filter(name.text()) : find_test(name.text());
    if (builtin == nullptr && filter && is_left_out_filter(name.text())) {
      fail_unsupported(0, {"the filter '", name.text(), "'"});
    }
  }
  if (builtin == nullptr) {
    fail({"No ", filter ? "filter" : "test", " named ", repr_of(run, name).text(), "."});
  }
  return *builtin;
}

Given without_first(const Given& given, uint32_t count) {
  Given rest = given;
  rest.positional += count;
  rest.count -= count;
  return rest;
}

Value map_attribute(Run& run, const Value& self, const Given& given) {
  Value path;
  Value otherwise;
  for (uint32_t i = 0; i < given.named_count; ++i) {
    if (given.named[i].name == "attribute") {
      path = given.named[i].value;
    } else if (given.named[i].name == "default") {
      otherwise = given.named[i].value;
    } else {
      fail({"Unexpected keyword argument '", given.named[i].name, "'"});
    }
  }
  ListBuilder results(run);
  Cursor cursor(run, self);
  Value item;
  while (cursor.next(run, &item)) {
    results.add(follow(run, item, path, otherwise));
  }
  return results.iterator();
}

Value filter_map(Run& run, Value self, const Given& given) {
  ListBuilder results(run);
  if (!truth(run, self)) {
    return results.iterator();
  }
  bool attribute = false;
  for (uint32_t i = 0; i < given.named_count; ++i) {
    attribute |= given.named[i].name == "attribute";
  }
  if (given.count == 0 && attribute) {
    return map_attribute(run, self, given);
  }
  if (given.count == 0) {
    fail({"map requires a filter argument"});
  }
  const Builtin& filter = found(run, given.positional[0], true);
  const Given rest = without_first(given, 1);
  const Deeper deeper(run);
  Cursor cursor(run, self);
  Value item;
  while (cursor.next(run, &item)) {
    results.add(call_builtin(run, filter, item, rest));
  }
  return results.iterator();
}

Value chosen(Run& run, const Value& self, const Given& given, bool by_attribute, bool wanted) {
  ListBuilder results(run);
  if (!truth(run, self)) {
    return results.iterator();
  }
  if (by_attribute && given.count == 0) {
    fail({"Missing parameter for attribute name"});
  }
  const uint32_t first = by_attribute ? 1 : 0;
  const Builtin* const test =
      given.count > first ? &found(run, given.positional[first], false) : nullptr;
  const Given rest = without_first(given, test == nullptr ? given.count : first + 1);
  Cursor cursor(run, self);
  Value item;
  while (cursor.next(run, &item)) {
    Value value = by_attribute ? follow(run, item, given.positional[0], Value()) : item;
    if (test != nullptr) {
      value = call_builtin(run, *test, value, rest);
    }
    if (truth(run, value) == wanted) {
      results.add(item);
    }
  }
  return results.iterator();
}

Value filter_select(Run& run, Value self, const Given& given) {
  return chosen(run, self, given, false, true);
}
Value filter_reject(Run& run, Value self, const Given& given) {
  return chosen(run, self, given, false, false);
}
Value filter_selectattr(Run& run, Value self, const Given& given) {
  return chosen(run, self, given, true, true);
}
Value filter_rejectattr(Run& run, Value self, const Given& given) {
  return chosen(run, self, given, true, false);
}

}  // namespace

Table choosing_filters() {
  static constexpr Builtin kFilters[] = {
      {"attr", filter_attr, "name", 1},
      {"d", filter_default, "default_value boolean"},
      {"default", filter_default, "default_value boolean"},
      {"map", filter_map, "*"},
      {"reject", filter_reject, "*"},
      {"rejectattr", filter_rejectattr, "*"},
      {"select", filter_select, "*"},
      {"selectattr", filter_selectattr, "*"},
  };
  return kFilters;
}

}  // namespace headrace::text::jinja
