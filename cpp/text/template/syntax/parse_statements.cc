#include "text/template/syntax/parser.h"
#include "text/unicode/utf8.h"

namespace headrace::text::jinja {

Body Parser::subparse(Names end) {
  const Deeper deeper(run_);
  Growing<Node*> body;
  OutputNode* output = nullptr;
  Growing<Node*> parts;
  const auto flush = [&] {
    if (output != nullptr) {
      output->parts = spanned(parts);
      body.push_back(output);
      output = nullptr;
      parts.clear();
    }
  };
  const auto add = [&](Node* part) {
    if (output == nullptr) {
      output = make<OutputNode>(NodeKind::kOutput, part->line);
    }
    above(output, part);
    parts.push_back(part);
  };
  if (end.size() > 0) {
    wanted_ends_.emplace_back(end);
  }
  while (!is(Token::kEnd)) {
    const LexedToken token = take();
    if (token.kind == Token::kData) {
      ConstNode* const text = make<ConstNode>(NodeKind::kConst, token.line);
      text->value = Value::of(token.text);
      add(text);
    } else if (token.kind == Token::kVariableBegin) {
      add(tuple({}));
      expect(Token::kVariableEnd, "end of print statement");
    } else {
      flush();
      if (is_any_name(end)) {
        break;
      }
      body.push_back(statement());
      expect(Token::kBlockEnd, "end of statement block");
    }
  }
  flush();
  if (end.size() > 0) {
    if (is(Token::kEnd)) {
      fail_end({}, now().line);
    }
    wanted_ends_.pop_back();
  }
  return spanned(body);
}

Body Parser::statements(Names end, bool drop_end) {
  skip_if(Token::kColon);
  expect(Token::kBlockEnd, "end of statement block");
  const Body body = subparse(end);
  if (drop_end) {
    take();
  }
  return body;
}

/// The template ends too early, or a tag is unknown.
void Parser::fail_end(std::string_view unknown_tag, uint32_t line) const {
  std::string message = "Unexpected end of template.";
  if (!unknown_tag.empty()) {
    message = "Encountered unknown tag '" + shortened(unknown_tag, 50) + "'.";
  }
  if (!wanted_ends_.empty()) {
    std::string wanted;
    bool nesting = false;
    for (const std::string_view name : wanted_ends_.back()) {
      wanted += (wanted.empty() ? "'" : " or '") + std::string(name) + "'";
    }
    for (const auto& ends : wanted_ends_) {
      for (const std::string_view name : ends) {
        nesting |= name == unknown_tag;
      }
    }
    message += nesting ? " You probably made a nesting mistake. Jinja is expecting this tag, but "
                         "currently looking for " +
                             wanted + "."
                       : " Jinja was looking for the following tags: " + wanted + ".";
  }
  if (!open_tags_.empty()) {
    message += " The innermost block that needs to be closed is '";
    message += std::string(open_tags_.back()) + "'.";
  }
  fail_at(line, {message});
}

Node* Parser::statement() {
  if (!is(Token::kName)) {
    fail_at(now().line, {"tag name expected"});
  }
  struct KnownTag {
    std::string_view name;
    Node* (Parser::*parse)();
  };
  static constexpr KnownTag kTags[] = {
      {"for", &Parser::for_},
      {"if", &Parser::if_},
      {"set", &Parser::set},
      {"with", &Parser::with},
      {"macro", &Parser::macro},
      {"call", &Parser::call_block},
      {"print", &Parser::print},
      {"generation", &Parser::generation},
      {"filter", &Parser::filter_block},
  };
  const std::string_view name = now().text;
  const uint32_t line = now().line;
  for (const KnownTag& tag : kTags) {
    if (tag.name == name) {
      open_tags_.push_back(name);
      Node* const node = (this->*tag.parse)();
      open_tags_.pop_back();
      return node;
    }
  }
  if (name == "break" || name == "continue") {
    take();
    return make<Node>(name == "break" ? NodeKind::kBreak : NodeKind::kContinue, line);
  }
  if (name == "include" || name == "extends" || name == "import" || name == "from") {
    take();
    return include(name);
  }
  if (name == "block" || name == "autoescape") {
    fail_unsupported(line, {"the tag '", name, "'"});
  }
  fail_end(name, line);
}

Node* Parser::for_() {
  ForNode* const node = make<ForNode>(NodeKind::kFor, take().line);
  const size_t loop_stores = loop_stores_.size();
  node->target = target(false, "in");
  expect_name("in");
  TupleForm form;
  form.with_condition = false;
  form.end_name = "recursive";
  node->over = tuple(form);
  if (skip_if_name("if")) {
    node->test = expression();
  }
  node->recursive = skip_if_name("recursive");
  {
    const Watching watching(*this);
    node->body = statements({"endfor", "else"}, false);
    node->uses_loop = node->recursive || watching.read(kLoopName);
  }
  if (take().text == "else") {
    node->otherwise = statements({"endfor"}, true);
  }
  if (loop_stores_.size() > loop_stores) {
    fail_at(loop_stores_[loop_stores],
            {"Can't assign to special loop variable in for-loop target"});
  }
  above(node, node->over);
  above(node, node->test);
  return node;
}

Node* Parser::if_() {
  IfNode* const node = make<IfNode>(NodeKind::kIf, take().line);
  Growing<Branch> branches;
  TupleForm form;
  form.with_condition = false;
  while (true) {
    Branch branch;
    branch.test = tuple(form);
    above(node, branch.test);
    branch.body = statements({"elif", "else", "endif"}, false);
    branches.push_back(branch);
    const std::string_view next = take().text;
    if (next == "else") {
      branches.push_back({nullptr, statements({"endif"}, true)});
    }
    if (next != "elif") {
      break;
    }
  }
  node->branches = spanned(branches);
  return node;
}

Node* Parser::set() {
  const uint32_t line = take().line;
  Node* const to = target(true, {});
  if (skip_if(Token::kAssign)) {
    AssignNode* const node = make<AssignNode>(NodeKind::kAssign, line);
    node->target = to;
    node->value = tuple({});
    above(node, node->value);
    return node;
  }
  AssignBlockNode* const node = make<AssignBlockNode>(NodeKind::kAssignBlock, line);
  node->target = to;
  while (skip_if(Token::kPipe)) {
    node->filter = filter(node->filter);
  }
  node->body = statements({"endset"}, true);
  return node;
}

Node* Parser::with() {
  WithNode* const node = make<WithNode>(NodeKind::kWith, take().line);
  Growing<Node*> targets;
  Growing<Node*> values;
  while (!is(Token::kBlockEnd)) {
    if (!targets.empty()) {
      expect(Token::kComma, ",");
    }
    // Only names and tuples of names, which are as parameters.
    targets.push_back(target(false, {}));
    expect(Token::kAssign, "=");
    values.push_back(expression());
    above(node, values.back());
  }
  node->targets = spanned(targets);
  node->values = spanned(values);
  node->body = statements({"endwith"}, true);
  return node;
}

void Parser::signature(MacroNode* node) {
  Growing<NameNode*> parameters;
  Growing<Node*> defaults;
  expect(Token::kLeftParen, "(");
  while (!is(Token::kRightParen)) {
    if (!parameters.empty()) {
      expect(Token::kComma, ",");
    }
    NameNode* const parameter = name_target(NameUse::kParameter);
    run_.spend(parameters.size() / 4);
    for (const NameNode* other : parameters) {
      if (other->id == parameter->id) {
        fail_at(parameter->line, {"duplicate argument '", parameter->name, "' of a macro"});
      }
    }
    if (skip_if(Token::kAssign)) {
      defaults.push_back(expression());
      above(node, defaults.back());
    } else if (!defaults.empty()) {
      fail_at(now().line, {"non-default argument follows default argument"});
    }
    parameters.push_back(parameter);
  }
  expect(Token::kRightParen, ")");
  node->parameters = spanned(parameters);
  node->defaults = spanned(defaults);
}

void Parser::macro_body(MacroNode* node, Names end) {
  const Watching watching(*this);
  node->body = statements(end, true);
  bool own_kwargs = false;
  bool own_varargs = false;
  size_t caller = node->parameters.count;
  for (size_t i = 0; i < node->parameters.count; ++i) {
    const uint32_t id = node->parameters[i]->id;
    caller = id == kCallerName ? i : caller;
    own_kwargs |= id == kKwargsName;
    own_varargs |= id == kVarargsName;
  }
  node->explicit_caller = caller < node->parameters.count;
  if (watching.read(kCallerName)) {
    if (node->explicit_caller && caller + node->defaults.count < node->parameters.count) {
      fail_at(node->line, {"When defining macros or call blocks the special \"caller\" argument "
                           "must be omitted or be given a default."});
    }
    node->has_caller = true;
  }
  node->has_kwargs = watching.read(kKwargsName) && !own_kwargs;
  node->has_varargs = watching.read(kVarargsName) && !own_varargs;
}

Node* Parser::macro() {
  MacroNode* const node = make<MacroNode>(NodeKind::kMacro, take().line);
  const NameNode* const name = name_target(NameUse::kStore);
  node->name = name->name;
  node->id = name->id;
  signature(node);
  macro_body(node, {"endmacro"});
  return node;
}

Node* Parser::call_block() {
  const uint32_t line = take().line;
  CallBlockNode* const node = make<CallBlockNode>(NodeKind::kCallBlock, line);
  node->caller = make<MacroNode>(NodeKind::kMacro, line);
  if (is(Token::kLeftParen)) {
    signature(node->caller);
  }
  Node* const call = expression();
  if (call->kind != NodeKind::kCall) {
    fail_at(line, {"expected call"});
  }
  node->call = static_cast<CallNode*>(call);
  above(node, call);
  macro_body(node->caller, {"endcall"});
  return node;
}

Node* Parser::generation() {
  const uint32_t line = take().line;
  CallBlockNode* const node = make<CallBlockNode>(NodeKind::kCallBlock, line);
  node->caller = make<MacroNode>(NodeKind::kMacro, line);
  macro_body(node->caller, {"endgeneration"});
  return node;
}

Node* Parser::filter_block() {
  FilterBlockNode* const node = make<FilterBlockNode>(NodeKind::kFilterBlock, take().line);
  node->filter = filter(nullptr);
  while (skip_if(Token::kPipe)) {
    node->filter = filter(node->filter);
  }
  node->body = statements({"endfilter"}, true);
  return node;
}

Node* Parser::print() {
  OutputNode* const node = make<OutputNode>(NodeKind::kOutput, take().line);
  Growing<Node*> parts;
  while (!is(Token::kBlockEnd)) {
    if (!parts.empty()) {
      expect(Token::kComma, ",");
    }
    parts.push_back(expression());
    above(node, parts.back());
  }
  node->parts = spanned(parts);
  return node;
}

Node* Parser::include(std::string_view tag) {
  IncludeNode* const node = make<IncludeNode>(NodeKind::kInclude, now().line);
  node->name = expression();
  above(node, node->name);
  if (tag == "include") {
    if (is_name("ignore") && ahead().kind == Token::kName && ahead().text == "missing") {
      take();
      take();
    }
    skip_import_context();
  } else if (tag == "import") {
    expect_name("as");
    node->targets = spanned(Growing<NameNode*>{name_target(NameUse::kStore)});
    skip_import_context();
  } else if (tag == "from") {
    import_names(node);
  }
  return node;
}

void Parser::skip_import_context() {
  if (is_any_name({"with", "without"}) && ahead().kind == Token::kName &&
      ahead().text == "context") {
    take();
    take();
  }
}

Node* Parser::import_names(IncludeNode* node) {
  expect_name("import");
  Growing<NameNode*> targets;
  while (true) {
    if (!targets.empty()) {
      expect(Token::kComma, ",");
    }
    NameNode* name = name_target(NameUse::kStore);
    if (name->name.substr(0, 1) == "_") {
      fail_at(name->line, {"names starting with an underline can not be imported"});
    }
    if (skip_if_name("as")) {
      name = name_target(NameUse::kStore);
    }
    targets.push_back(name);
    skip_import_context();
    if (!is(Token::kComma)) {
      break;
    }
  }
  node->targets = spanned(targets);
  return node;
}

}  // namespace headrace::text::jinja
