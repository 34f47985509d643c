#include "text/template/syntax/parser.h"

namespace headrace::text::jinja {
namespace {

// How tightly operators bind, from the loosest.
enum Level : int { kOr = 1, kAnd, kNot, kCompare, kSum, kJoin, kProduct, kPower };

int level_of(const LexedToken& token) {
  switch (token.kind) {
    case Token::kName:
      return token.text == "or"    ? kOr
             : token.text == "and" ? kAnd
             : token.text == "in"  ? kCompare
                                   : 0;
    case Token::kEq:
    case Token::kNe:
    case Token::kLt:
    case Token::kLe:
    case Token::kGt:
    case Token::kGe:
      return kCompare;
    case Token::kAdd:
    case Token::kSub:
      return kSum;
    case Token::kTilde:
      return kJoin;
    case Token::kMul:
    case Token::kDiv:
    case Token::kFloorDiv:
    case Token::kMod:
      return kProduct;
    case Token::kPow:
      return kPower;
    default:
      return 0;
  }
}

Operation operation_of(Token token) {
  switch (token) {
    case Token::kSub:
      return Operation::kSub;
    case Token::kMul:
      return Operation::kMul;
    case Token::kDiv:
      return Operation::kDiv;
    case Token::kFloorDiv:
      return Operation::kFloorDiv;
    case Token::kMod:
      return Operation::kMod;
    case Token::kPow:
      return Operation::kPow;
    default:
      return Operation::kAdd;
  }
}

Comparison comparison_of(Token token) {
  switch (token) {
    case Token::kNe:
      return Comparison::kNe;
    case Token::kLt:
      return Comparison::kLt;
    case Token::kLe:
      return Comparison::kLe;
    case Token::kGt:
      return Comparison::kGt;
    case Token::kGe:
      return Comparison::kGe;
    default:
      return Comparison::kEq;
  }
}

}  // namespace

NameNode* Parser::name_target(NameUse use) {
  const LexedToken token = expect_any_name();
  NameNode* const node = make_name(token, use);
  as_target(node);
  return node;
}

Node* Parser::target(bool with_namespace, std::string_view end_name) {
  TupleForm form;
  form.simplified = true;
  form.with_namespace = with_namespace;
  form.end_name = end_name;
  return as_target(tuple(form));
}

/// Makes of what was read what is written. (What was read first was not mentioned as read.)
Node* Parser::as_target(Node* node) {
  if (node->kind == NodeKind::kName) {
    NameNode* const name = static_cast<NameNode*>(node);
    if (name->name == "true" || name->name == "True" || name->name == "false" ||
        name->name == "False" || name->name == "none" || name->name == "None") {
      fail_at(node->line, {"can't assign to 'name'"});
    }
    if (name->use == NameUse::kLoad) {
      name->use = NameUse::kStore;
      if (name->id == kLoopName) {
        loop_stores_.push_back(node->line);
      }
    }
    mention(name->id, false);
  } else if (node->kind == NodeKind::kTuple) {
    for (Node* const item : static_cast<ItemsNode*>(node)->items) {
      as_target(item);
    }
  } else if (node->kind != NodeKind::kNamespaceRef) {
    fail_at(node->line, {"can't assign to this"});
  }
  return node;
}

Node* Parser::expression(bool with_condition) { return with_condition ? condition() : level(kOr); }

Node* Parser::condition() {
  uint32_t line = now().line;
  Node* value = level(kOr);
  while (skip_if_name("if")) {
    CondNode* const node = make<CondNode>(NodeKind::kCond, line);
    node->yes = value;
    node->test = level(kOr);
    if (skip_if_name("else")) {
      const Deeper deeper(run_);
      node->no = condition();
    }
    above(node, node->yes);
    above(node, node->test);
    above(node, node->no);
    value = node;
    line = now().line;
  }
  return value;
}

Node* Parser::level(int least) {
  const Deeper deeper(run_);
  const uint32_t line = now().line;
  Node* left = nullptr;
  if (least <= kNot && is_name("not")) {
    take();
    OperatorNode* const node = make<OperatorNode>(NodeKind::kNot, line);
    node->left = level(kNot);
    above(node, node->left);
    left = node;
  } else {
    left = unary(true);
  }
  while (true) {
    const bool not_in = is_name("not") && ahead().kind == Token::kName && ahead().text == "in";
    const int found = not_in ? static_cast<int>(kCompare) : level_of(now());
    if (found == 0 || found < least) {
      return left;
    }
    if (found == kCompare) {
      left = compare(left);
    } else if (found == kJoin) {
      left = concat(left);
    } else {
      const LexedToken token = take();
      const NodeKind kind = found == kOr    ? NodeKind::kOr
                            : found == kAnd ? NodeKind::kAnd
                                            : NodeKind::kBinary;
      OperatorNode* const node = make<OperatorNode>(kind, line);
      node->operation = operation_of(token.kind);
      node->left = left;
      node->right = found == kPower ? unary(true) : level(found + 1);
      above(node, node->left);
      above(node, node->right);
      left = node;
    }
  }
}

Node* Parser::compare(Node* first) {
  CompareNode* const node = make<CompareNode>(NodeKind::kCompare, now().line);
  node->first = first;
  above(node, first);
  Growing<Operand> operands;
  while (true) {
    Operand operand;
    if (is_name("in")) {
      operand.comparison = Comparison::kIn;
    } else if (is_name("not") && ahead().kind == Token::kName && ahead().text == "in") {
      operand.comparison = Comparison::kNotIn;
      take();
    } else if (!is(Token::kName) && level_of(now()) == kCompare) {
      operand.comparison = comparison_of(now().kind);
    } else {
      break;
    }
    take();
    operand.node = level(kSum);
    above(node, operand.node);
    operands.push_back(operand);
  }
  node->operands = spanned(operands);
  return node;
}

Node* Parser::concat(Node* first) {
  ItemsNode* const node = make<ItemsNode>(NodeKind::kConcat, now().line);
  Growing<Node*> items{first};
  while (skip_if(Token::kTilde)) {
    items.push_back(level(kProduct));
  }
  for (const Node* item : items) {
    above(node, item);
  }
  node->items = spanned(items);
  return node;
}

Node* Parser::unary(bool with_filter) {
  const LexedToken token = now();
  Node* node = nullptr;
  if (token.kind == Token::kSub || token.kind == Token::kAdd) {
    const Deeper deeper(run_);
    take();
    OperatorNode* const sign = make<OperatorNode>(
        token.kind == Token::kSub ? NodeKind::kNegative : NodeKind::kPositive, token.line);
    sign->left = unary(false);
    above(sign, sign->left);
    node = sign;
  } else {
    node = primary(false);
  }
  node = postfix(node);
  return with_filter ? filters_and_tests(node) : node;
}

Node* Parser::primary(bool with_namespace, NameUse use) {
  if (!is(Token::kName)) {
    return literal();
  }
  const LexedToken token = take();
  const std::string_view name = token.text;
  const bool yes = name == "true" || name == "True";
  if (yes || name == "false" || name == "False" || name == "none" || name == "None") {
    ConstNode* const node = make<ConstNode>(NodeKind::kConst, token.line);
    node->value = yes || name[0] == 'f' || name[0] == 'F' ? Value::of(yes) : Value::none();
    return node;
  }
  if (with_namespace && is(Token::kDot)) {
    take();
    NamespaceRefNode* const node = make<NamespaceRefNode>(NodeKind::kNamespaceRef, token.line);
    node->name = name;
    node->id = id_of(name);
    node->attribute = expect_any_name().text;
    return node;
  }
  return make_name(token, use);
}

Node* Parser::literal() {
  const LexedToken token = now();
  switch (token.kind) {
    case Token::kString:
      return strings();
    case Token::kInteger:
    case Token::kBigInteger:
    case Token::kFloat: {
      take();
      ConstNode* const node = make<ConstNode>(NodeKind::kConst, token.line);
      if (token.kind == Token::kInteger) {
        node->value = Value::of(token.integer);
      } else if (token.kind == Token::kFloat) {
        node->value = Value::of(token.real);
      } else {
        node->value = Value::of(token.text);
        node->value.kind = Kind::kBigInt;
      }
      return node;
    }
    case Token::kLeftParen: {
      take();
      TupleForm form;
      form.parentheses = true;
      Node* const node = tuple(form);
      expect(Token::kRightParen, ")");
      return node;
    }
    case Token::kLeftBracket:
      return list();
    case Token::kLeftBrace:
      return dict();
    default:
      unexpected(token);
  }
}

/// "a" "b" is one string.
Node* Parser::strings() {
  ConstNode* const node = make<ConstNode>(NodeKind::kConst, now().line);
  const std::string_view first = take().text;
  node->value = Value::of(first);
  if (is(Token::kString)) {
    Builder builder(run_);
    builder.append(first);
    while (is(Token::kString)) {
      builder.append(take().text);
    }
    node->value = builder.value();
  }
  return node;
}

Node* Parser::tuple(const TupleForm& form) {
  uint32_t line = now().line;
  Growing<Node*> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) {
      expect(Token::kComma, ",");
    }
    if (is(Token::kVariableEnd) || is(Token::kBlockEnd) || is(Token::kRightParen) ||
        (!form.end_name.empty() && is_name(form.end_name))) {
      break;
    }
    items.push_back(form.simplified ? primary(form.with_namespace, NameUse::kStore)
                                    : expression(form.with_condition));
    if (!is(Token::kComma)) {
      break;
    }
    is_tuple = true;
    line = now().line;
  }
  if (!is_tuple && !items.empty()) {
    return items[0];
  }
  if (!is_tuple && !form.parentheses) {
    fail_at(now().line, {"Expected an expression, got '", described_now(), "'"});
  }
  ItemsNode* const node = make<ItemsNode>(NodeKind::kTuple, line);
  for (const Node* item : items) {
    above(node, item);
  }
  node->items = spanned(items);
  return node;
}

Node* Parser::list() {
  ItemsNode* const node = make<ItemsNode>(NodeKind::kList, take().line);
  Growing<Node*> items;
  while (!is(Token::kRightBracket)) {
    if (!items.empty()) {
      expect(Token::kComma, ",");
    }
    if (is(Token::kRightBracket)) {
      break;
    }
    items.push_back(expression());
    above(node, items.back());
  }
  expect(Token::kRightBracket, "]");
  node->items = spanned(items);
  return node;
}

Node* Parser::dict() {
  DictNode* const node = make<DictNode>(NodeKind::kDict, take().line);
  Growing<Pair> pairs;
  while (!is(Token::kRightBrace)) {
    if (!pairs.empty()) {
      expect(Token::kComma, ",");
    }
    if (is(Token::kRightBrace)) {
      break;
    }
    Pair pair;
    pair.key = expression();
    expect(Token::kColon, ":");
    pair.value = expression();
    above(node, pair.key);
    above(node, pair.value);
    pairs.push_back(pair);
  }
  expect(Token::kRightBrace, "}");
  node->pairs = spanned(pairs);
  return node;
}

}  // namespace headrace::text::jinja
