#include "text/template/library/arguments.h"
#include "text/template/library/letters.h"
#include "text/template/library/tables.h"
#include "text/template/run/operators.h"
#include "text/template/values/dict.h"

namespace headrace::text::jinja {
namespace {

template <Kind kKind>
Value test_kind(Run&, Value self, const Given&) {
  return Value::of(self.kind == kKind);
}

template <Comparison kComparison>
Value test_compare(Run& run, Value self, const Given& given) {
  return Value::of(compare(run, kComparison, self, given.positional[0]));
}

Value is_rest(Run& run, const Value& self, const Value& by, int64_t rest) {
  return Value::of(equal(run, operate(run, Operation::kMod, self, by), Value::of(rest)));
}
Value test_odd(Run& run, Value self, const Given&) {
  return is_rest(run, self, Value::of(int64_t{2}), 1);
}
Value test_even(Run& run, Value self, const Given&) {
  return is_rest(run, self, Value::of(int64_t{2}), 0);
}
Value test_divisibleby(Run& run, Value self, const Given& given) {
  return is_rest(run, self, given.positional[0], 0);
}

Value test_defined(Run&, Value self, const Given&) { return Value::of(!self.is_undefined()); }
Value test_true(Run&, Value self, const Given&) {
  return Value::of(self.kind == Kind::kBool && self.boolean);
}
Value test_false(Run&, Value self, const Given&) {
  return Value::of(self.kind == Kind::kBool && !self.boolean);
}
Value test_integer(Run&, Value self, const Given&) {
  return Value::of(self.kind == Kind::kInt || self.kind == Kind::kBigInt);
}
Value test_number(Run&, Value self, const Given&) {
  return Value::of(self.is_number() || self.kind == Kind::kBigInt);
}
Value test_lower(Run& run, Value self, const Given&) {
  const Value text = str_of(run, self);
  run.spend_bytes(text.size);
  return Value::of(python_islower(text.text()));
}
Value test_upper(Run& run, Value self, const Given&) {
  const Value text = str_of(run, self);
  run.spend_bytes(text.size);
  return Value::of(python_isupper(text.text()));
}
Value test_sequence(Run&, Value self, const Given&) {
  return Value::of(self.is_string() || self.is_sequence() || self.kind == Kind::kDict ||
                   self.kind == Kind::kRange || self.is_undefined());
}
Value test_iterable(Run&, Value self, const Given&) {
  return Value::of(Cursor::can_iterate(self) || self.kind == Kind::kLoop);
}
Value test_callable(Run&, Value self, const Given&) {
  return Value::of(self.kind == Kind::kMacro || self.kind == Kind::kMethod ||
                   self.kind == Kind::kFunction || self.kind == Kind::kLoop || self.is_undefined());
}
Value test_escaped(Run&, Value self, const Given&) { return Value::of(self.is_markup()); }

Value test_sameas(Run&, Value self, const Given& given) {
  const Value& other = given.positional[0];
  if (self.kind != other.kind || self.size != other.size || self.tag != other.tag) {
    return Value::of(false);
  }
  return Value::of(self.is_none() || (self.kind == Kind::kBool ? self.boolean == other.boolean
                                                               : self.dict == other.dict));
}

Value test_filter(Run& run, Value self, const Given&) {
  hash_of(run, self);  // fails for what can't be the name of anything
  return Value::of(self.is_string() &&
                   (find_filter(self.text()) != nullptr || is_left_out_filter(self.text())));
}
Value test_test(Run& run, Value self, const Given&) {
  hash_of(run, self);
  return Value::of(self.is_string() && find_test(self.text()) != nullptr);
}

}  // namespace

Table tests() {
  constexpr Function eq = test_compare<Comparison::kEq>;
  constexpr Function ne = test_compare<Comparison::kNe>;
  constexpr Function lt = test_compare<Comparison::kLt>;
  constexpr Function le = test_compare<Comparison::kLe>;
  constexpr Function gt = test_compare<Comparison::kGt>;
  constexpr Function ge = test_compare<Comparison::kGe>;
  static constexpr Builtin kTests[] = {
      {"!=", ne, "other", 1, 1},
      {"<", lt, "other", 1, 1},
      {"<=", le, "other", 1, 1},
      {"==", eq, "other", 1, 1},
      {">", gt, "other", 1, 1},
      {">=", ge, "other", 1, 1},
      {"boolean", test_kind<Kind::kBool>},
      {"callable", test_callable},
      {"defined", test_defined},
      {"divisibleby", test_divisibleby, "num", 1},
      {"eq", eq, "other", 1, 1},
      {"equalto", eq, "other", 1, 1},
      {"escaped", test_escaped},
      {"even", test_even},
      {"false", test_false},
      {"filter", test_filter},
      {"float", test_kind<Kind::kFloat>},
      {"ge", ge, "other", 1, 1},
      {"greaterthan", gt, "other", 1, 1},
      {"gt", gt, "other", 1, 1},
      {"in", test_compare<Comparison::kIn>, "seq", 1},
      {"integer", test_integer},
      {"iterable", test_iterable},
      {"le", le, "other", 1, 1},
      {"lessthan", lt, "other", 1, 1},
      {"lower", test_lower},
      {"lt", lt, "other", 1, 1},
      {"mapping", test_kind<Kind::kDict>},
      {"ne", ne, "other", 1, 1},
      {"none", test_kind<Kind::kNone>},
      {"number", test_number},
      {"odd", test_odd},
      {"sameas", test_sameas, "other", 1},
      {"sequence", test_sequence},
      {"string", test_kind<Kind::kString>},
      {"test", test_test},
      {"true", test_true},
      {"undefined", test_kind<Kind::kUndefined>},
      {"upper", test_upper},
  };
  return kTests;
}

}  // namespace headrace::text::jinja
