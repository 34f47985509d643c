#include "text/template/run/operators.h"

#include <cmath>

#include "text/template/format/format.h"
#include "text/template/values/compare.h"
#include "text/template/values/repr.h"

namespace headrace::text::jinja {
namespace {

constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

[[noreturn]] void fail_operands(Operation operation, const Value& left, const Value& right) {
  fail({"TypeError: unsupported operand type(s) for ", kSigns[static_cast<int>(operation)], ": '",
        type_name(left), "' and '", type_name(right), "'"});
}

[[noreturn]] void fail_zero(std::string_view what) { fail({"ZeroDivisionError: ", what}); }

double real_of(const Value& value) noexcept {
  return value.kind == Kind::kFloat ? value.real : static_cast<double>(value.int_value());
}

int64_t floor_div(int64_t left, int64_t right) {
  if (right == 0) {
    fail_zero("integer division or modulo by zero");
  }
  if (right == -1) {
    int64_t result = 0;
    if (__builtin_sub_overflow(int64_t{0}, left, &result)) {
      fail_big_integer();
    }
    return result;
  }
  const int64_t quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

int64_t floor_mod(int64_t left, int64_t right) {
  if (right == 0) {
    fail_zero("integer modulo by zero");
  }
  if (right == -1) {
    return 0;
  }
  const int64_t rest = left % right;
  return rest != 0 && (rest < 0) != (right < 0) ? rest + right : rest;
}

double float_mod(double left, double right) {
  if (right == 0) {
    fail_zero("float modulo");
  }
  const double rest = std::fmod(left, right);
  if (rest == 0) {
    return std::copysign(0.0, right);
  }
  return (rest < 0) != (right < 0) ? rest + right : rest;
}

double float_floor_div(double left, double right) {
  if (right == 0) {
    fail_zero("float floor division by zero");
  }
  const double rest = std::fmod(left, right);
  double quotient = (left - rest) / right;
  if (rest != 0 && (rest < 0) != (right < 0)) {
    quotient -= 1;
  }
  if (quotient == 0) {
    return std::copysign(0.0, left / right);
  }
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value float_pow(double base, double exponent) {
  if (base == 0 && exponent < 0) {
    fail_zero("0.0 cannot be raised to a negative power");
  }
  if (base < 0 && std::isfinite(base) && std::isfinite(exponent) &&
      std::floor(exponent) != exponent) {
    fail_unsupported(0, {"complex numbers"});
  }
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent)) {
    fail({"OverflowError: (34, 'Numerical result out of range')"});
  }
  return Value::of(result);
}

Value int_pow(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    return float_pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  int64_t result = 1;
  for (int64_t square = base, rest = exponent; rest > 0;) {
    if ((rest & 1) != 0 && __builtin_mul_overflow(result, square, &result)) {
      fail_big_integer();
    }
    rest >>= 1;
    if (rest > 0 && __builtin_mul_overflow(square, square, &square)) {
      fail_big_integer();
    }
  }
  return Value::of(result);
}

Value integer_operation(Operation operation, int64_t left, int64_t right) {
  int64_t result = 0;
  bool overflow = false;
  switch (operation) {
    case Operation::kAdd:
      overflow = __builtin_add_overflow(left, right, &result);
      break;
    case Operation::kSub:
      overflow = __builtin_sub_overflow(left, right, &result);
      break;
    case Operation::kMul:
      overflow = __builtin_mul_overflow(left, right, &result);
      break;
    case Operation::kDiv:
      if (right == 0) {
        fail_zero("division by zero");
      }
      return Value::of(
          static_cast<double>(static_cast<long double>(left) / static_cast<long double>(right)));
    case Operation::kFloorDiv:
      return Value::of(floor_div(left, right));
    case Operation::kMod:
      return Value::of(floor_mod(left, right));
    case Operation::kPow:
      return int_pow(left, right);
  }
  if (overflow) {
    fail_big_integer();
  }
  return Value::of(result);
}

Value float_operation(Operation operation, double left, double right) {
  switch (operation) {
    case Operation::kAdd:
      return Value::of(left + right);
    case Operation::kSub:
      return Value::of(left - right);
    case Operation::kMul:
      return Value::of(left * right);
    case Operation::kDiv:
      if (right == 0) {
        fail_zero("float division by zero");
      }
      return Value::of(left / right);
    case Operation::kFloorDiv:
      return Value::of(float_floor_div(left, right));
    case Operation::kMod:
      return Value::of(float_mod(left, right));
    default:
      return float_pow(left, right);
  }
}

Value concatenated(Run& run, const Value& left, const Value& right) {
  if (left.is_string()) {
    const bool markup = left.is_markup() || right.is_markup();
    const Value first = markup ? escaped(run, left) : left;
    const Value second = markup ? escaped(run, right) : right;
    Builder out(run);
    out.reserve(static_cast<size_t>(first.size) + second.size);
    out.append(first.text());
    out.append(second.text());
    return out.value(markup ? kMarkup : kPlain);
  }
  const size_t count = static_cast<size_t>(left.size) + right.size;
  run.spend_bytes(count * sizeof(Value));
  Value* const items = run.arena.array<Value>(count);
  for (uint32_t i = 0; i < left.size; ++i) {
    items[i] = left.items[i];
  }
  for (uint32_t i = 0; i < right.size; ++i) {
    items[left.size + i] = right.items[i];
  }
  return Value::sequence(left.kind, items, count);
}

Value repeated(Run& run, const Value& value, int64_t times) {
  const uint64_t count = times > 0 ? static_cast<uint64_t>(times) : 0;
  if (value.is_string()) {
    Builder out(run);
    out.append_times(value.text(), count);
    return out.value(value.tag);
  }
  constexpr uint64_t kHuge = 1ull << 32;
  const uint64_t size = value.size == 0              ? 0
                        : count > kHuge / value.size ? kHuge
                                                     : count * value.size;
  run.spend_bytes(size * sizeof(Value));
  Value* const items = run.arena.array<Value>(size);
  for (uint64_t i = 0; i < size; ++i) {
    items[i] = value.items[i % value.size];
  }
  return Value::sequence(value.kind, items, size);
}

bool can_repeat(const Value& value) noexcept { return value.is_string() || value.is_sequence(); }

bool is_set(const Value& value) noexcept {
  return value.kind == Kind::kView && value.tag != kValues;
}

[[noreturn]] void fail_add(Run&, const Value& left, const Value& right) {
  if (left.kind == Kind::kString && left.tag == kPlain && !right.is_string()) {
    fail({"TypeError: can only concatenate str (not \"", type_name(right), "\") to str"});
  }
  if (left.is_sequence()) {
    fail({"TypeError: can only concatenate ", type_name(left), " (not \"", type_name(right),
          "\") to ", type_name(left)});
  }
  fail_operands(Operation::kAdd, left, right);
}

}  // namespace

Value operate(Run& run, Operation operation, const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) {
    return integer_operation(operation, left.int_value(), right.int_value());
  }
  if (left.is_number() && right.is_number()) {
    return float_operation(operation, real_of(left), real_of(right));
  }
  if (operation == Operation::kMod && left.is_string()) {
    return format_percent(run, left, right);
  }
  if (operation == Operation::kSub && (is_set(left) || is_set(right))) {
    fail_unsupported(0, {"the difference of sets, which keys() and items() are"});
  }
  if (left.is_undefined() || right.is_undefined()) {
    fail_undefined(run, left.is_undefined() ? left : right);
  }
  if (operation == Operation::kAdd) {
    if (left.kind == right.kind && can_repeat(left)) {
      return concatenated(run, left, right);
    }
    if (left.kind != Kind::kBigInt && right.kind != Kind::kBigInt) {
      fail_add(run, left, right);
    }
  }
  if (operation == Operation::kMul && can_repeat(left) && right.is_integral()) {
    return repeated(run, left, right.int_value());
  }
  if (operation == Operation::kMul && can_repeat(right) && left.is_integral()) {
    return repeated(run, right, left.int_value());
  }
  if (left.kind == Kind::kBigInt || right.kind == Kind::kBigInt) {
    fail_big_integer();
  }
  fail_operands(operation, left, right);
}

Value negated(Run& run, const Value& value) {
  if (value.kind == Kind::kFloat) {
    return Value::of(-value.real);
  }
  if (value.is_integral()) {
    return integer_operation(Operation::kSub, 0, value.int_value());
  }
  if (value.is_undefined()) {
    fail_undefined(run, value);
  }
  if (value.kind == Kind::kBigInt) {
    fail_big_integer();
  }
  fail({"TypeError: bad operand type for unary -: '", type_name(value), "'"});
}

Value unchanged(Run& run, const Value& value) {
  if (value.is_integral()) {
    return Value::of(value.int_value());
  }
  if (value.kind == Kind::kFloat || value.kind == Kind::kBigInt) {
    return value;
  }
  if (value.is_undefined()) {
    fail_undefined(run, value);
  }
  fail({"TypeError: bad operand type for unary +: '", type_name(value), "'"});
}

bool compare(Run& run, Comparison comparison, const Value& left, const Value& right) {
  switch (comparison) {
    case Comparison::kEq:
      return equal(run, left, right);
    case Comparison::kNe:
      return !equal(run, left, right);
    case Comparison::kLt:
      return less(run, left, right, "<");
    case Comparison::kLe:
      return less(run, left, right, "<=");
    case Comparison::kGt:
      return less(run, right, left, ">");
    case Comparison::kGe:
      return less(run, right, left, ">=");
    case Comparison::kIn:
      return contains(run, right, left);
    default:
      return !contains(run, right, left);
  }
}

}  // namespace headrace::text::jinja
