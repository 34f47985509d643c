#include "text/template/run/evaluator.h"
#include "text/template/run/members.h"
#include "text/template/values/dict.h"

namespace headrace::text::jinja {

std::string_view macro_name(const MacroValue& macro) noexcept { return macro.node->name; }

Given Evaluator::given(const Arguments& arguments, Activation* frame, const Value& caller) {
  if (arguments.star != nullptr || arguments.star_star != nullptr) {
    return given_stars(arguments, frame, caller);
  }
  Value* const positional = run_.arena.array<Value>(arguments.positional.count);
  for (uint32_t i = 0; i < arguments.positional.count; ++i) {
    positional[i] = evaluate(arguments.positional[i], frame);
  }
  const uint32_t count = arguments.named.count + (caller.is_missing() ? 0 : 1);
  NamedValue* const named = count == 0 ? nullptr : run_.arena.array<NamedValue>(count);
  for (uint32_t i = 0; i < arguments.named.count; ++i) {
    named[i] = {arguments.named[i].name, evaluate(arguments.named[i].value, frame)};
  }
  if (!caller.is_missing()) {
    named[count - 1] = {"caller", caller};
  }
  return {positional, arguments.positional.count, named, count};
}

/// With what *list and **dict hold.
Given Evaluator::given_stars(const Arguments& arguments, Activation* frame, const Value& caller) {
  Arguments plain = arguments;
  plain.star = nullptr;
  plain.star_star = nullptr;
  Given all = given(plain, frame, caller);
  if (arguments.star != nullptr) {
    const Items more = all_items(run_, evaluate(arguments.star, frame));
    run_.spend(all.count + more.count);
    Value* const positional = run_.arena.array<Value>(all.count + more.count);
    std::copy(all.positional, all.positional + all.count, positional);
    std::copy(more.items, more.items + more.count, positional + all.count);
    all.positional = positional;
    all.count += more.count;
  }
  if (arguments.star_star == nullptr) {
    return all;
  }
  const Value more = evaluate(arguments.star_star, frame);
  if (more.kind != Kind::kDict) {
    fail({"TypeError: argument after ** must be a mapping, not ", type_name(more)});
  }
  const Dict* const dict = more.dict;
  run_.spend(all.named_count * uint64_t{dict->count} + dict->count);
  NamedValue* const named = run_.arena.array<NamedValue>(all.named_count + dict->count);
  std::copy(all.named, all.named + all.named_count, named);
  for (uint32_t i = 0; i < dict->count; ++i) {
    const DictEntry& entry = dict->entries[i];
    if (!entry.key.is_string()) {
      fail({"TypeError: keywords must be strings"});
    }
    for (uint32_t k = 0; k < all.named_count; ++k) {
      if (all.named[k].name == entry.key.text()) {
        fail({"TypeError: got multiple values for keyword argument '", entry.key.text(), "'"});
      }
    }
    named[all.named_count + i] = {entry.key.text(), entry.value};
  }
  all.named = named;
  all.named_count += dict->count;
  return all;
}

Value Evaluator::call(const CallNode* node, Activation* frame, const Value& caller) {
  const Value callee = evaluate(node->callee, frame);
  const Given arguments = given(node->arguments, frame, caller);
  run_.line = node->line;
  return call_value(callee, arguments);
}

Value Evaluator::call_value(const Value& callee, const Given& given) {
  switch (callee.kind) {
    case Kind::kMacro:
      return call_macro(*callee.macro, given);
    case Kind::kMethod:
      return call_builtin(run_, *callee.method->function, callee.method->self, given);
    case Kind::kFunction:
      return call_builtin(run_, *callee.function, Value(), given);
    case Kind::kLoop:
      return call_loop(*callee.loop, given);
    case Kind::kUndefined:
      fail_undefined(run_, callee);
    default:
      fail({"TypeError: '", type_name(callee), "' object is not callable"});
  }
}

namespace {

/// Takes the value of that name out of those that are left.
Value taken(std::string_view name, NamedValue* named, uint32_t* count) {
  for (uint32_t i = 0; i < *count; ++i) {
    if (named[i].name == name) {
      const Value value = named[i].value;
      std::copy(named + i + 1, named + *count, named + i);
      --*count;
      return value;
    }
  }
  return Value();
}

Value dict_of(Run& run, const NamedValue* named, uint32_t count) {
  Dict* const dict = new_dict(run, count);
  for (uint32_t i = 0; i < count; ++i) {
    dict_set(run, dict, Value::of(named[i].name), named[i].value);
  }
  return Value::of(dict);
}

[[noreturn]] void fail_named(const MacroNode* node, const NamedValue* named, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    if (named[i].name == "caller") {
      fail({"TypeError: macro '", node->name, "' was invoked with two values for the special ",
            "caller argument. This is most likely a bug."});
    }
  }
  fail({"TypeError: macro '", node->name, "' takes no keyword argument '", named[0].name, "'"});
}

}  // namespace

void Evaluator::bind_macro(const MacroNode* node, const Given& given, Activation* frame) {
  const uint32_t count = node->parameters.count;
  const uint32_t positional = std::min(given.count, count);
  NamedValue* const named =
      given.named_count == 0 ? nullptr : run_.arena.array<NamedValue>(given.named_count);
  uint32_t named_left = given.named_count;
  std::copy(given.named, given.named + given.named_count, named);
  enter(node->loads, frame);
  run_.spend(count * uint64_t{given.named_count} + count + given.count);
  bool found_caller = positional == count && node->explicit_caller;
  for (uint32_t i = 0; i < count; ++i) {
    const NameNode* const parameter = node->parameters[i];
    Value& value = frame->slots[parameter->ref.slot];
    value = i < positional ? given.positional[i] : taken(parameter->name, named, &named_left);
    found_caller |= i >= positional && parameter->name == "caller";
  }
  if (node->has_caller && !found_caller) {
    const Value caller = taken("caller", named, &named_left);
    frame->slots[node->caller_slot] = caller.is_missing() || caller.is_none()
                                          ? undefined_hint(run_, "No caller defined")
                                          : caller;
  }
  if (node->has_kwargs) {
    frame->slots[node->kwargs_slot] = dict_of(run_, named, named_left);
  } else if (named_left > 0) {
    fail_named(node, named, named_left);
  }
  const uint32_t more = given.count - positional;
  if (node->has_varargs) {
    frame->slots[node->varargs_slot] =
        Value::sequence(Kind::kTuple, given.positional + positional, more);
  } else if (more > 0) {
    fail({"TypeError: macro '", node->name, "' takes not more than ", std::to_string(count),
          " argument(s)"});
  }
  for (uint32_t i = 0; i < count; ++i) {
    const NameNode* const parameter = node->parameters[i];
    Value& value = frame->slots[parameter->ref.slot];
    if (!value.is_missing()) {
      continue;
    }
    const uint32_t first_default = count - node->defaults.count;
    if (i >= first_default) {
      value = evaluate(node->defaults[i - first_default], frame);
    } else {
      Builder hint(run_);
      hint.append("parameter '");
      hint.append(parameter->name);
      hint.append("' was not provided");
      value = undefined_hint(run_, hint.view());
    }
  }
}

Value Evaluator::call_macro(const MacroValue& macro, const Given& given) {
  Activation* const frame = new_frame(macro.node->slots, macro.outer);
  bind_macro(macro.node, given, frame);
  const size_t mark = out_.size();
  ++capturing_;
  execute(macro.node->body, frame);
  --capturing_;
  return captured_since(mark);
}

Value Evaluator::filter_or_test(const FilterNode* node, Activation* frame) {
  const Value of = node->of != nullptr ? evaluate(node->of, frame) : block_input_;
  const Given arguments = given(node->arguments, frame, Value());
  run_.line = node->line;
  if (node->function == nullptr) {
    fail({"No ", node->kind == NodeKind::kFilter ? "filter" : "test", " named '", node->name,
          "' found."});
  }
  return call_builtin(run_, *node->function, of, arguments);
}

}  // namespace headrace::text::jinja
