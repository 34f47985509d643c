#include "text/template/values/compare.h"

#include <cmath>
#include <limits>

#include "text/template/values/chars.h"
#include "text/template/values/dict.h"
#include "text/template/values/repr.h"
#include "text/unicode/utf8.h"

namespace headrace::text::jinja {
namespace {

constexpr int kUnordered = 2;

/// -1, 0, 1, or kUnordered: exact, as Python compares integers with floats.
int compare_int_float(int64_t left, double right) noexcept {
  if (std::isnan(right)) {
    return kUnordered;
  }
  if (right >= 9223372036854775808.0) {
    return -1;
  }
  if (right < -9223372036854775808.0) {
    return 1;
  }
  const double whole = std::floor(right);
  const int64_t integer = static_cast<int64_t>(whole);
  if (left != integer) {
    return left < integer ? -1 : 1;
  }
  return whole < right ? -1 : 0;
}

template <class T>
int compare_plain(T left, T right) noexcept {
  return left < right ? -1 : left > right ? 1 : left == right ? 0 : kUnordered;
}

int compare_numbers(const Value& left, const Value& right) noexcept {
  if (left.is_integral()) {
    return right.is_integral() ? compare_plain(left.int_value(), right.int_value())
                               : compare_int_float(left.int_value(), right.real);
  }
  if (right.is_integral()) {
    const int inverse = compare_int_float(right.int_value(), left.real);
    return inverse == kUnordered ? inverse : -inverse;
  }
  return compare_plain(left.real, right.real);
}

bool equal_items(Run& run, const Value& left, const Value& right) {
  if (left.size != right.size || left.items == right.items) {
    return left.size == right.size;
  }
  const Deeper deeper(run);
  for (uint32_t i = 0; i < left.size; ++i) {
    run.spend(1);
    if (!equal(run, left.items[i], right.items[i])) {
      return false;
    }
  }
  return true;
}

bool equal_dicts(Run& run, const Dict* left, const Dict* right) {
  if (left == right || left->count != right->count) {
    return left == right;
  }
  const Deeper deeper(run);
  for (uint32_t i = 0; i < left->count; ++i) {
    run.spend(1);
    const Value* const other = dict_get(run, right, left->entries[i].key);
    if (other == nullptr || !equal(run, left->entries[i].value, *other)) {
      return false;
    }
  }
  return true;
}

bool equal_ranges(const Range& left, const Range& right) noexcept {
  return left.count == right.count &&
         (left.count == 0 ||
          (left.start == right.start && (left.count == 1 || left.step == right.step)));
}

/// Python has keys() and items() as sets.
bool equal_views(Run& run, const Value& left, const Value& right) {
  if (left.tag == kValues || right.tag == kValues) {
    return false;
  }
  if (left.dict->count != right.dict->count) {
    return false;
  }
  const Deeper deeper(run);
  Cursor cursor(run, left);
  Value item;
  while (cursor.next(run, &item)) {
    if (!contains(run, right, item)) {
      return false;
    }
  }
  return true;
}

bool contains_in_view(Run& run, const Value& view, const Value& item) {
  if (view.tag == kKeys) {
    return dict_get(run, view.dict, item) != nullptr;
  }
  if (view.tag == kItems) {
    if (item.kind != Kind::kTuple || item.size != 2) {
      return false;
    }
    const Value* const value = dict_get(run, view.dict, item.items[0]);
    return value != nullptr && equal(run, *value, item.items[1]);
  }
  for (uint32_t i = 0; i < view.dict->count; ++i) {
    if (equal(run, view.dict->entries[i].value, item)) {
      return true;
    }
  }
  return false;
}

[[noreturn]] void fail_order(const Value& left, const Value& right, std::string_view sign) {
  fail({"TypeError: '", sign, "' not supported between instances of '", type_name(left), "' and '",
        type_name(right), "'"});
}

bool less_items(Run& run, const Value& left, const Value& right, std::string_view sign) {
  const Deeper deeper(run);
  const uint32_t common = left.size < right.size ? left.size : right.size;
  const bool or_equal = sign == "<=" || sign == ">=";
  for (uint32_t i = 0; i < common; ++i) {
    run.spend(1);
    if (!equal(run, left.items[i], right.items[i])) {
      return less(run, left.items[i], right.items[i], sign);
    }
  }
  return or_equal ? left.size <= right.size : left.size < right.size;
}

}  // namespace

std::string_view type_name(const Value& value) noexcept {
  switch (value.kind) {
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.tag == kMarkup ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return value.tag == kGroup ? "_GroupTuple" : "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kView:
      return value.tag == kKeys ? "dict_keys" : value.tag == kValues ? "dict_values" : "dict_items";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return "generator";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kMethod:
      return "builtin_function_or_method";
    case Kind::kFunction:
      return "function";
    default:
      return "Undefined";
  }
}

bool truth(Run& run, const Value& value) {
  switch (value.kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean;
    case Kind::kInt:
      return value.integer != 0;
    case Kind::kFloat:
      return value.real != 0;
    case Kind::kLoop:
      return length_of(run, value) != 0;
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
      return value.size != 0;
    case Kind::kDict:
    case Kind::kView:
      return value.dict->count != 0;
    case Kind::kRange:
      return value.range->count != 0;
    default:
      return true;
  }
}

bool equal(Run& run, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    return compare_numbers(left, right) == 0;
  }
  if (left.kind != right.kind) {
    return false;
  }
  switch (left.kind) {
    case Kind::kString:
    case Kind::kBigInt:
      if (left.size != right.size) {
        return false;
      }
      run.spend_bytes(left.size);
      return left.text() == right.text();
    case Kind::kList:
    case Kind::kTuple:
      return equal_items(run, left, right);
    case Kind::kDict:
      return equal_dicts(run, left.dict, right.dict);
    case Kind::kView:
      return equal_views(run, left, right);
    case Kind::kRange:
      return equal_ranges(*left.range, *right.range);
    case Kind::kNone:
    case Kind::kUndefined:
    case Kind::kMissing:
      return true;
    case Kind::kMethod:
      return left.method->function == right.method->function &&
             left.method->self.dict == right.method->self.dict;
    default:
      return left.dict == right.dict;
  }
}

bool less(Run& run, const Value& left, const Value& right, std::string_view sign) {
  // For a > b the two come the other way round.
  const bool turned = sign[0] == '>';
  const bool or_equal = sign.size() == 2;
  if (left.is_number() && right.is_number()) {
    const int order = compare_numbers(left, right);
    return order == -1 || (or_equal && order == 0);
  }
  if (left.is_string() && right.is_string()) {
    run.spend_bytes(left.size < right.size ? left.size : right.size);
    const int order = left.text().compare(right.text());
    return order < 0 || (or_equal && order == 0);
  }
  if (left.is_undefined() || right.is_undefined()) {
    fail_undefined(run, left.is_undefined() ? left : right);
  }
  if (left.kind == right.kind && left.is_sequence()) {
    return less_items(run, left, right, sign);
  }
  if (left.kind == Kind::kBigInt || right.kind == Kind::kBigInt) {
    fail_big_integer();
  }
  if (left.kind == Kind::kView && right.kind == Kind::kView) {
    fail_unsupported(0, {"comparing sets, which keys() and items() are"});
  }
  fail_order(turned ? right : left, turned ? left : right, sign);
}

bool contains(Run& run, const Value& container, const Value& item) {
  switch (container.kind) {
    case Kind::kString:
      if (item.is_undefined()) {
        fail({"TypeError: 'in <string>' requires string as left operand, not Undefined"});
      }
      if (!item.is_string()) {
        fail({"TypeError: 'in <string>' requires string as left operand, not ", type_name(item)});
      }
      run.spend_bytes(container.size);
      return find_text(run, container.text(), item.text(), 0) != std::string_view::npos;
    case Kind::kDict:
      return dict_get(run, container.dict, item) != nullptr;
    case Kind::kView:
      return contains_in_view(run, container, item);
    default:
      break;
  }
  if (!Cursor::can_iterate(container)) {
    fail({"TypeError: argument of type '", type_name(container), "' is not iterable"});
  }
  Cursor cursor(run, container);
  Value mine;
  while (cursor.next(run, &mine)) {
    if (equal(run, mine, item)) {
      return true;
    }
  }
  return false;
}

void fail_undefined(Run& run, const Value& value) {
  const Undefined* const about = value.undefined;
  if (about == nullptr) {
    fail({"the value is undefined"});
  }
  if (!about->hint.empty()) {
    fail({about->hint});
  }
  if (about->of.is_missing()) {
    fail({"'", about->name.text(), "' is undefined"});
  }
  std::string type = about->of.is_none() ? "None" : std::string(type_name(about->of)) + " object";
  if (about->of.is_markup()) {
    type = "markupsafe." + type;
  } else if (about->of.kind == Kind::kNamespace) {
    type = "jinja2.utils." + type;
  } else if (about->of.kind == Kind::kMacro || about->of.kind == Kind::kLoop) {
    type = "jinja2.runtime." + type;
  }
  if (about->name.is_string()) {
    fail({"'", type, "' has no attribute ", shortened(repr_of(run, about->name).text())});
  }
  fail({type, " has no element ", shortened(repr_of(run, about->name).text())});
}

}  // namespace headrace::text::jinja
