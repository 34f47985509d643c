#include "text/template/library/builtin.h"
#include "text/template/syntax/parser.h"

namespace headrace::text::jinja {

Node* Parser::postfix(Node* node) {
  while (true) {
    if (is(Token::kDot) || is(Token::kLeftBracket)) {
      node = subscript(node);
    } else if (is(Token::kLeftParen)) {
      node = call(node);
    } else {
      return node;
    }
  }
}

Node* Parser::filters_and_tests(Node* node) {
  while (true) {
    if (is(Token::kPipe)) {
      take();
      node = filter(node);
    } else if (is_name("is")) {
      node = test(node);
    } else if (is(Token::kLeftParen)) {
      node = call(node);
    } else {
      return node;
    }
  }
}

Node* Parser::subscript(Node* of) {
  const LexedToken token = take();
  if (token.kind == Token::kDot && is(Token::kName)) {
    GetattrNode* const node = make<GetattrNode>(NodeKind::kGetattr, token.line);
    node->of = of;
    node->name = take().text;
    above(node, of);
    return node;
  }
  GetitemNode* const node = make<GetitemNode>(NodeKind::kGetitem, token.line);
  node->of = of;
  if (token.kind == Token::kDot) {
    if (!is(Token::kInteger)) {
      fail_at(now().line, {"expected name or number"});
    }
    ConstNode* const number = make<ConstNode>(NodeKind::kConst, now().line);
    number->value = Value::of(take().integer);
    node->item = number;
  } else {
    Growing<Node*> items;
    while (!is(Token::kRightBracket)) {
      if (!items.empty()) {
        expect(Token::kComma, ",");
      }
      items.push_back(subscribed());
    }
    expect(Token::kRightBracket, "]");
    if (items.size() == 1) {
      node->item = items[0];
    } else {
      ItemsNode* const tuple = make<ItemsNode>(NodeKind::kTuple, token.line);
      for (const Node* item : items) {
        if (item->kind == NodeKind::kSlice) {
          fail_unsupported(token.line, {"a tuple of slices"});
        }
        above(tuple, item);
      }
      tuple->items = spanned(items);
      node->item = tuple;
    }
  }
  above(node, node->of);
  above(node, node->item);
  return node;
}

Node* Parser::subscribed() {
  const uint32_t line = now().line;
  Node* start = nullptr;
  if (!is(Token::kColon)) {
    start = expression();
    if (!is(Token::kColon)) {
      return start;
    }
  }
  take();
  SliceNode* const node = make<SliceNode>(NodeKind::kSlice, line);
  const auto at_end = [&] { return is(Token::kRightBracket) || is(Token::kComma); };
  node->start = start;
  if (!is(Token::kColon) && !at_end()) {
    node->stop = expression();
  }
  if (skip_if(Token::kColon) && !at_end()) {
    node->step = expression();
  }
  above(node, node->start);
  above(node, node->stop);
  above(node, node->step);
  return node;
}

Node* Parser::call(Node* callee) {
  CallNode* const node = make<CallNode>(NodeKind::kCall, now().line);
  node->callee = callee;
  node->arguments = call_arguments();
  above(node, callee);
  above(node, node->arguments);
  return node;
}

Arguments Parser::call_arguments() {
  const uint32_t line = expect(Token::kLeftParen, "(").line;
  Arguments arguments;
  Growing<Node*> positional;
  Growing<Keyword> named;
  bool first = true;
  while (!is(Token::kRightParen)) {
    if (!first) {
      expect(Token::kComma, ",");
      if (is(Token::kRightParen)) {
        break;
      }
    }
    first = false;
    call_argument(&arguments, &positional, &named, line);
  }
  expect(Token::kRightParen, ")");
  arguments.positional = spanned(positional);
  arguments.named = spanned(named);
  return arguments;
}

void Parser::call_argument(Arguments* arguments, Growing<Node*>* positional,
                           Growing<Keyword>* named, uint32_t line) {
  const auto require = [&](bool fine) {
    if (!fine) {
      fail_at(line, {"invalid syntax for function call expression"});
    }
  };
  const bool no_stars = arguments->star == nullptr && arguments->star_star == nullptr;
  if (is(Token::kMul)) {
    require(no_stars);
    take();
    arguments->star = expression();
  } else if (is(Token::kPow)) {
    require(arguments->star_star == nullptr);
    take();
    arguments->star_star = expression();
  } else if (is(Token::kName) && ahead().kind == Token::kAssign) {
    require(arguments->star_star == nullptr);
    Keyword keyword;
    keyword.name = take().text;
    take();
    run_.spend(named->size() / 4);
    for (const Keyword& other : *named) {
      if (other.name == keyword.name) {
        fail_at(line, {"keyword argument repeated: ", keyword.name});
      }
    }
    keyword.value = expression();
    named->push_back(keyword);
  } else {
    require(no_stars && named->empty());
    positional->push_back(expression());
  }
}

std::string_view Parser::dotted_name() {
  std::string_view name = expect_any_name().text;
  if (is(Token::kDot)) {
    Builder builder(run_);
    builder.append(name);
    while (skip_if(Token::kDot)) {
      builder.append('.');
      builder.append(expect_any_name().text);
    }
    name = builder.view();
  }
  return name;
}

/// REQUIRES: the pipe was read.
FilterNode* Parser::filter(Node* of) {
  FilterNode* const node = make<FilterNode>(NodeKind::kFilter, now().line);
  node->of = of;
  node->name = dotted_name();
  node->function = find_filter(node->name);
  if (node->function == nullptr && is_left_out_filter(node->name)) {
    fail_unsupported(node->line, {"the filter '", node->name, "'"});
  }
  if (is(Token::kLeftParen)) {
    node->arguments = call_arguments();
  }
  above(node, of);
  above(node, node->arguments);
  return node;
}

Node* Parser::test(Node* of) {
  const uint32_t line = take().line;
  const bool negated = skip_if_name("not");
  FilterNode* const node = make<FilterNode>(NodeKind::kTest, line);
  node->of = of;
  node->name = dotted_name();
  node->function = find_test(node->name);
  const Token kind = now().kind;
  if (kind == Token::kLeftParen) {
    node->arguments = call_arguments();
  } else if ((kind == Token::kName && !is_any_name({"else", "or", "and"})) ||
             kind == Token::kString || kind == Token::kInteger || kind == Token::kBigInteger ||
             kind == Token::kFloat || kind == Token::kLeftBracket || kind == Token::kLeftBrace) {
    if (is_name("is")) {
      fail_at(now().line, {"You cannot chain multiple tests with is"});
    }
    node->arguments.positional = spanned(Growing<Node*>{postfix(primary(false))});
  }
  above(node, of);
  above(node, node->arguments);
  if (!negated) {
    return node;
  }
  OperatorNode* const inverse = make<OperatorNode>(NodeKind::kNot, line);
  inverse->left = node;
  above(inverse, node);
  return inverse;
}

}  // namespace headrace::text::jinja
