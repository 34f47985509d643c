#include "text/template/run/evaluator.h"
#include "text/template/run/members.h"
#include "text/template/run/operators.h"
#include "text/template/values/dict.h"
#include "text/template/values/repr.h"

namespace headrace::text::jinja {

Value Evaluator::evaluate(const Node* node, Activation* frame) {
  run_.spend(1);
  if (node->kind == NodeKind::kConst) {
    return static_cast<const ConstNode*>(node)->value;
  }
  if (node->kind == NodeKind::kName) {
    return name(static_cast<const NameNode*>(node), frame);
  }
  return evaluate_deeper(node, frame);
}

Value Evaluator::evaluate_deeper(const Node* node, Activation* frame) {
  const Deeper deeper(run_);
  run_.line = node->line;
  switch (node->kind) {
    case NodeKind::kTuple:
    case NodeKind::kList:
      return items(static_cast<const ItemsNode*>(node), frame);
    case NodeKind::kDict:
      return dict(static_cast<const DictNode*>(node), frame);
    case NodeKind::kCond:
      return condition(static_cast<const CondNode*>(node), frame);
    case NodeKind::kAnd:
    case NodeKind::kOr:
      return logic(static_cast<const OperatorNode*>(node), frame);
    case NodeKind::kNot:
    case NodeKind::kNegative:
    case NodeKind::kPositive:
      return unary(static_cast<const OperatorNode*>(node), frame);
    case NodeKind::kBinary:
      return binary(static_cast<const OperatorNode*>(node), frame);
    case NodeKind::kConcat:
      return concat(static_cast<const ItemsNode*>(node), frame);
    case NodeKind::kCompare:
      return compare_chain(static_cast<const CompareNode*>(node), frame);
    case NodeKind::kGetattr:
      return attribute(static_cast<const GetattrNode*>(node), frame);
    case NodeKind::kGetitem:
      return item(static_cast<const GetitemNode*>(node), frame);
    case NodeKind::kCall:
      return call(static_cast<const CallNode*>(node), frame, Value());
    default:
      return filter_or_test(static_cast<const FilterNode*>(node), frame);
  }
}

bool Evaluator::is_true(const Node* node, Activation* frame) {
  return truth(run_, evaluate(node, frame));
}

Value Evaluator::name(const NameNode* node, Activation* frame) {
  const Value& value = slot(node->ref, frame);
  return value.is_missing() ? undefined_named(run_, node->name) : value;
}

Value Evaluator::items(const ItemsNode* node, Activation* frame) {
  const uint32_t count = node->items.count;
  Value* const values = run_.arena.array<Value>(count);
  for (uint32_t i = 0; i < count; ++i) {
    values[i] = evaluate(node->items[i], frame);
  }
  return Value::sequence(node->kind == NodeKind::kTuple ? Kind::kTuple : Kind::kList, values,
                         count);
}

Value Evaluator::dict(const DictNode* node, Activation* frame) {
  Dict* const made = new_dict(run_, node->pairs.count);
  for (const Pair& pair : node->pairs) {
    const Value key = evaluate(pair.key, frame);
    const Value value = evaluate(pair.value, frame);
    run_.line = node->line;
    dict_set(run_, made, key, value);
  }
  return Value::of(made);
}

Value Evaluator::condition(const CondNode* node, Activation* frame) {
  if (is_true(node->test, frame)) {
    return evaluate(node->yes, frame);
  }
  if (node->no != nullptr) {
    return evaluate(node->no, frame);
  }
  return undefined_hint(run_,
                        "the inline if-expression evaluated to false and no else section was "
                        "defined.");
}

Value Evaluator::logic(const OperatorNode* node, Activation* frame) {
  const Value left = evaluate(node->left, frame);
  return truth(run_, left) == (node->kind == NodeKind::kAnd) ? evaluate(node->right, frame) : left;
}

Value Evaluator::unary(const OperatorNode* node, Activation* frame) {
  const Value value = evaluate(node->left, frame);
  run_.line = node->line;
  if (node->kind == NodeKind::kNot) {
    return Value::of(!truth(run_, value));
  }
  return node->kind == NodeKind::kNegative ? negated(run_, value) : unchanged(run_, value);
}

Value Evaluator::binary(const OperatorNode* node, Activation* frame) {
  const Value left = evaluate(node->left, frame);
  const Value right = evaluate(node->right, frame);
  run_.line = node->line;
  return operate(run_, node->operation, left, right);
}

Value Evaluator::concat(const ItemsNode* node, Activation* frame) {
  const uint32_t count = node->items.count;
  Value* const values = run_.arena.array<Value>(count);
  for (uint32_t i = 0; i < count; ++i) {
    values[i] = evaluate(node->items[i], frame);
  }
  run_.line = node->line;
  Builder out(run_);
  for (uint32_t i = 0; i < count; ++i) {
    append_str(run_, &out, values[i]);
  }
  return out.value();
}

Value Evaluator::compare_chain(const CompareNode* node, Activation* frame) {
  Value left = evaluate(node->first, frame);
  for (const Operand& operand : node->operands) {
    const Value right = evaluate(operand.node, frame);
    run_.line = node->line;
    if (!compare(run_, operand.comparison, left, right)) {
      return Value::of(false);
    }
    left = right;
  }
  return Value::of(true);
}

Value Evaluator::attribute(const GetattrNode* node, Activation* frame) {
  const Value of = evaluate(node->of, frame);
  run_.line = node->line;
  return get_attribute(run_, of, node->name);
}

Value Evaluator::item(const GetitemNode* node, Activation* frame) {
  const Value of = evaluate(node->of, frame);
  if (node->item->kind != NodeKind::kSlice) {
    const Value which = evaluate(node->item, frame);
    run_.line = node->line;
    return get_item(run_, of, which);
  }
  const SliceNode* const slice = static_cast<const SliceNode*>(node->item);
  Value* const parts = run_.arena.array<Value>(3);
  const Node* const nodes[] = {slice->start, slice->stop, slice->step};
  for (int i = 0; i < 3; ++i) {
    if (nodes[i] != nullptr) {
      parts[i] = evaluate(nodes[i], frame);
    }
  }
  run_.line = node->line;
  return get_slice(run_, of, parts[0], parts[1], parts[2]);
}

}  // namespace headrace::text::jinja
