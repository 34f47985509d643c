#include "text/template/run/evaluator.h"
#include "text/template/run/members.h"
#include "text/template/values/dict.h"
#include "text/template/values/repr.h"

namespace headrace::text::jinja {

std::string Evaluator::render(const Program& program) {
  Activation* const frame = new_frame(program.slots, nullptr);
  enter(program.loads, frame);
  execute(program.body, frame);
  return std::move(out_);
}

Activation* Evaluator::new_frame(uint32_t slots, Activation* outer) {
  Activation* const frame = run_.arena.make<Activation>();
  run_.spend(slots);
  frame->slots = run_.arena.array<Value>(slots);
  frame->outer = outer;
  return frame;
}

Value Evaluator::resolve(std::string_view name) {
  if (const Value* const value = dict_get(run_, variables_, name)) {
    return *value;
  }
  Value value;
  if (const Builtin* const function = find_global(name)) {
    value.kind = Kind::kFunction;
    value.function = function;
  }
  return value;
}

void Evaluator::enter(const Loads& loads, Activation* frame) {
  for (const Load& load : loads) {
    run_.spend(1);
    frame->slots[load.slot] = load.from == Load::From::kContext ? resolve(load.name)
                              : load.from == Load::From::kOuter ? slot(load.outer, frame)
                                                                : Value();
  }
}

Evaluator::Flow Evaluator::execute(const Body& body, Activation* frame) {
  const Deeper deeper(run_);
  for (const Node* const node : body) {
    const Flow flow = execute_one(node, frame);
    if (flow != Flow::kNext) {
      return flow;
    }
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute_one(const Node* node, Activation* frame) {
  run_.spend(1);
  run_.line = node->line;
  switch (node->kind) {
    case NodeKind::kOutput:
      output(static_cast<const OutputNode*>(node), frame);
      return Flow::kNext;
    case NodeKind::kAssign:
      assign_node(static_cast<const AssignNode*>(node), frame);
      return Flow::kNext;
    case NodeKind::kAssignBlock:
      return assign_block(static_cast<const AssignBlockNode*>(node), frame);
    case NodeKind::kFor:
      return for_(static_cast<const ForNode*>(node), frame);
    case NodeKind::kIf:
      return if_(static_cast<const IfNode*>(node), frame);
    case NodeKind::kWith:
      return with(static_cast<const WithNode*>(node), frame);
    case NodeKind::kMacro:
      define_macro(static_cast<const MacroNode*>(node), frame);
      return Flow::kNext;
    case NodeKind::kCallBlock:
      call_block(static_cast<const CallBlockNode*>(node), frame);
      return Flow::kNext;
    case NodeKind::kFilterBlock:
      return filter_block(static_cast<const FilterBlockNode*>(node), frame);
    case NodeKind::kBreak:
      return Flow::kBreak;
    case NodeKind::kContinue:
      return Flow::kContinue;
    default:
      include(static_cast<const IncludeNode*>(node), frame);
      return Flow::kNext;
  }
}

void Evaluator::output(const OutputNode* node, Activation* frame) {
  for (const Node* const part : node->parts) {
    if (part->kind == NodeKind::kConst) {
      run_.spend(1);
      write(static_cast<const ConstNode*>(part)->value);
    } else {
      const Value value = evaluate(part, frame);
      run_.line = part->line;
      write(value);
    }
  }
}

void Evaluator::write_text(std::string_view text) {
  if (text.size() > max_output_ - out_.size()) {
    fail_limit({"it builds more than the ", std::to_string(max_output_), " bytes allowed"});
  }
  run_.spend_bytes(text.size());
  out_ += text;
}

void Evaluator::write(const Value& value) {
  if (value.is_string()) {
    write_text(value.text());
  } else if (!value.is_undefined()) {
    Builder text(run_);
    append_str(run_, &text, value);
    write_text(text.view());
  }
}

/// What a call or filter block gives is joined as it is: only texts can be.
void Evaluator::write_result(const Value& value) {
  if (!value.is_string()) {
    fail({"TypeError: expected str instance, ", type_name(value), " found"});
  }
  write_text(value.text());
}

Value Evaluator::captured_since(size_t mark) {
  const Value text = run_.copied(std::string_view(out_).substr(mark));
  out_.resize(mark);
  return text;
}

namespace {

void check_namespace(const Value& value, const Node* node) {
  if (value.kind != Kind::kNamespace) {
    fail_at(node->line, {"cannot assign attribute on non-namespace object"});
  }
}

}  // namespace

void Evaluator::assign_node(const AssignNode* node, Activation* frame) {
  const Node* const target = node->target;
  if (target->kind == NodeKind::kNamespaceRef) {
    check_namespace(slot(static_cast<const NamespaceRefNode*>(target)->ref, frame), target);
  }
  const Value value = evaluate(node->value, frame);
  run_.line = node->line;
  assign(target, value, frame);
}

void Evaluator::assign(const Node* target, const Value& value, Activation* frame) {
  if (target->kind == NodeKind::kName) {
    slot(static_cast<const NameNode*>(target)->ref, frame) = value;
  } else if (target->kind == NodeKind::kNamespaceRef) {
    const NamespaceRefNode* const ref = static_cast<const NamespaceRefNode*>(target);
    const Value& space = slot(ref->ref, frame);
    check_namespace(space, target);
    dict_set(run_, space.names, Value::of(ref->attribute), value);
  } else {
    unpack(static_cast<const ItemsNode*>(target), value, frame);
  }
}

void Evaluator::unpack(const ItemsNode* target, const Value& value, Activation* frame) {
  const uint32_t wanted = target->items.count;
  if (!Cursor::can_iterate(value)) {
    fail({"TypeError: cannot unpack non-iterable ", type_name(value), " object"});
  }
  Cursor cursor(run_, value);
  Value* const items = run_.arena.array<Value>(wanted);
  for (uint32_t i = 0; i < wanted; ++i) {
    if (!cursor.next(run_, items + i)) {
      fail({"ValueError: not enough values to unpack (expected ", std::to_string(wanted), ", got ",
            std::to_string(i), ")"});
    }
  }
  Value more;
  if (cursor.next(run_, &more)) {
    fail({"ValueError: too many values to unpack (expected ", std::to_string(wanted), ")"});
  }
  for (uint32_t i = 0; i < wanted; ++i) {
    assign(target->items[i], items[i], frame);
  }
}

Evaluator::Flow Evaluator::assign_block(const AssignBlockNode* node, Activation* frame) {
  enter(node->loads, frame);
  const size_t mark = out_.size();
  ++capturing_;
  const Flow flow = execute(node->body, frame);
  --capturing_;
  Value value = captured_since(mark);
  if (flow != Flow::kNext) {
    return flow;
  }
  if (node->filter != nullptr) {
    std::swap(block_input_, value);
    const Value filtered = evaluate(node->filter, frame);
    block_input_ = value;
    value = filtered;
  }
  assign(node->target, value, frame);
  return Flow::kNext;
}

Evaluator::Flow Evaluator::if_(const IfNode* node, Activation* frame) {
  for (const Branch& branch : node->branches) {
    if (branch.test == nullptr || is_true(branch.test, frame)) {
      return execute(branch.body, frame);
    }
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::with(const WithNode* node, Activation* frame) {
  enter(node->loads, frame);
  for (uint32_t i = 0; i < node->targets.count; ++i) {
    assign(node->targets[i], evaluate(node->values[i], frame), frame);
  }
  return execute(node->body, frame);
}

void Evaluator::define_macro(const MacroNode* node, Activation* frame) {
  Value value;
  value.kind = Kind::kMacro;
  value.macro = run_.arena.make<MacroValue>(MacroValue{node, frame});
  slot(node->ref, frame) = value;
}

void Evaluator::call_block(const CallBlockNode* node, Activation* frame) {
  if (node->call == nullptr) {
    return generation(node, frame);
  }
  Value caller;
  caller.kind = Kind::kMacro;
  caller.macro = run_.arena.make<MacroValue>(MacroValue{node->caller, frame});
  const Value text = call(node->call, frame, caller);
  run_.line = node->line;
  write_result(text);
}

void Evaluator::generation(const CallBlockNode* node, Activation* frame) {
  Activation* const own = new_frame(node->caller->slots, frame);
  bind_macro(node->caller, {}, own);
  const size_t mark = out_.size();
  execute(node->caller->body, own);
  if (capturing_ == 0) {
    generated.push_back({mark, out_.size()});
  }
}

Evaluator::Flow Evaluator::filter_block(const FilterBlockNode* node, Activation* frame) {
  enter(node->loads, frame);
  const size_t mark = out_.size();
  ++capturing_;
  const Flow flow = execute(node->body, frame);
  --capturing_;
  Value value = captured_since(mark);
  if (flow != Flow::kNext) {
    return flow;
  }
  std::swap(block_input_, value);
  const Value filtered = evaluate(node->filter, frame);
  block_input_ = value;
  run_.line = node->line;
  write_result(filtered);
  return Flow::kNext;
}

void Evaluator::include(const IncludeNode* node, Activation* frame) {
  evaluate(node->name, frame);
  fail_at(node->line, {"TypeError: no loader for this environment specified"});
}

}  // namespace headrace::text::jinja
