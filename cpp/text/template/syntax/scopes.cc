#include "text/template/syntax/scopes.h"

#include "text/template/syntax/parser.h"
#include "text/template/syntax/symbols.h"

namespace headrace::text::jinja {
namespace {

/// Calls `visit` for each expression right below an expression, in jinja2's order.
template <class Visit>
void each_argument(const Arguments& arguments, const Visit& visit) {
  for (Node* const node : arguments.positional) {
    visit(node);
  }
  for (const Keyword& keyword : arguments.named) {
    visit(keyword.value);
  }
  visit(arguments.star);
  visit(arguments.star_star);
}

template <class Visit>
void each_child(Node* node, const Visit& visit) {
  switch (node->kind) {
    case NodeKind::kTuple:
    case NodeKind::kList:
    case NodeKind::kConcat:
      for (Node* const item : static_cast<ItemsNode*>(node)->items) {
        visit(item);
      }
      break;
    case NodeKind::kDict:
      for (const Pair& pair : static_cast<DictNode*>(node)->pairs) {
        visit(pair.key);
        visit(pair.value);
      }
      break;
    case NodeKind::kCond: {
      const CondNode* const cond = static_cast<CondNode*>(node);
      visit(cond->test);
      visit(cond->yes);
      visit(cond->no);
      break;
    }
    case NodeKind::kAnd:
    case NodeKind::kOr:
    case NodeKind::kNot:
    case NodeKind::kNegative:
    case NodeKind::kPositive:
    case NodeKind::kBinary:
      visit(static_cast<OperatorNode*>(node)->left);
      visit(static_cast<OperatorNode*>(node)->right);
      break;
    case NodeKind::kCompare:
      visit(static_cast<CompareNode*>(node)->first);
      for (const Operand& operand : static_cast<CompareNode*>(node)->operands) {
        visit(operand.node);
      }
      break;
    case NodeKind::kGetattr:
      visit(static_cast<GetattrNode*>(node)->of);
      break;
    case NodeKind::kGetitem:
      visit(static_cast<GetitemNode*>(node)->of);
      visit(static_cast<GetitemNode*>(node)->item);
      break;
    case NodeKind::kSlice:
      visit(static_cast<SliceNode*>(node)->start);
      visit(static_cast<SliceNode*>(node)->stop);
      visit(static_cast<SliceNode*>(node)->step);
      break;
    case NodeKind::kCall:
      visit(static_cast<CallNode*>(node)->callee);
      each_argument(static_cast<CallNode*>(node)->arguments, visit);
      break;
    case NodeKind::kFilter:
    case NodeKind::kTest:
      visit(static_cast<FilterNode*>(node)->of);
      each_argument(static_cast<FilterNode*>(node)->arguments, visit);
      break;
    default:
      break;
  }
}

// What a scope's statements do with names; scopes within it are left to themselves.

void declare(Node* node, Symbols& symbols);

void declare_all(const Body& body, Symbols& symbols) {
  for (Node* const node : body) {
    declare(node, symbols);
  }
}

void declare_if(const IfNode* node, Symbols& symbols) {
  const size_t count = node->branches.count;
  const bool has_else = node->branches[count - 1].test == nullptr;
  declare(node->branches[0].test, symbols);
  std::vector<Symbols> branches(3, symbols);
  declare_all(node->branches[0].body, branches[0]);
  for (size_t i = 1; i < count - has_else; ++i) {
    declare(node->branches[i].test, branches[1]);
    std::vector<Symbols> inner(1, branches[1]);
    declare_all(node->branches[i].body, inner[0]);
    branches[1].update(inner);
  }
  if (has_else) {
    declare_all(node->branches[count - 1].body, branches[2]);
  }
  symbols.update(branches);
}

void declare_name(const NameNode* node, Symbols& symbols) {
  if (node->use == NameUse::kLoad) {
    symbols.load(node->id, node->name);
  } else if (node->use == NameUse::kStore) {
    symbols.store(node->id, node->name);
  } else {
    symbols.declare_parameter(node->id);
  }
}

void declare_filter(FilterNode* node, Symbols& symbols) {
  if (node != nullptr) {
    declare(node, symbols);
  }
}

void declare(Node* node, Symbols& symbols) {
  if (node == nullptr) {
    return;
  }
  switch (node->kind) {
    case NodeKind::kName:
      declare_name(static_cast<NameNode*>(node), symbols);
      break;
    case NodeKind::kNamespaceRef: {
      const NamespaceRefNode* const ref = static_cast<NamespaceRefNode*>(node);
      symbols.load(ref->id, ref->name);
      break;
    }
    case NodeKind::kOutput:
      declare_all(static_cast<OutputNode*>(node)->parts, symbols);
      break;
    case NodeKind::kAssign:
      declare(static_cast<AssignNode*>(node)->value, symbols);
      declare(static_cast<AssignNode*>(node)->target, symbols);
      break;
    case NodeKind::kAssignBlock:
      declare(static_cast<AssignBlockNode*>(node)->target, symbols);
      break;
    case NodeKind::kFor:
      declare(static_cast<ForNode*>(node)->over, symbols);
      break;
    case NodeKind::kIf:
      declare_if(static_cast<IfNode*>(node), symbols);
      break;
    case NodeKind::kWith:
      declare_all(static_cast<WithNode*>(node)->values, symbols);
      break;
    case NodeKind::kMacro:
      symbols.store(static_cast<MacroNode*>(node)->id, static_cast<MacroNode*>(node)->name);
      break;
    case NodeKind::kCallBlock:
      declare(static_cast<CallBlockNode*>(node)->call, symbols);
      break;
    case NodeKind::kFilterBlock:
      declare_filter(static_cast<FilterBlockNode*>(node)->filter, symbols);
      break;
    case NodeKind::kInclude:
      declare(static_cast<IncludeNode*>(node)->name, symbols);
      for (NameNode* const target : static_cast<IncludeNode*>(node)->targets) {
        declare(target, symbols);
      }
      break;
    default:
      each_child(node, [&](Node* child) { declare(child, symbols); });
      break;
  }
}

/// What is set by going through something, not by a statement of the scope.
void declare_as_parameters(Node* target, Symbols& symbols) {
  if (target->kind == NodeKind::kName) {
    symbols.declare_parameter(static_cast<NameNode*>(target)->id);
    return;
  }
  each_child(target, [&](Node* child) { declare_as_parameters(child, symbols); });
}

struct Frame {
  const Symbols* symbols;
  uint32_t level;
  bool soft = false;     ///< within an if: unknown filters fail when they are reached
  bool in_loop = false;  ///< break and continue mean something
};

class Resolver {
 public:
  Resolver(Run& run, std::set<std::string>* undeclared) : run_(run), undeclared_(undeclared) {}

  void program(Program* program) {
    FunctionScope function;
    Symbols symbols(run_, &function, nullptr, 0);
    declare_all(program->body, symbols);
    program->loads = entered(symbols);
    statements(program->body, {&symbols, 0});
    program->slots = static_cast<uint32_t>(function.slots.size());
  }

 private:
  Loads entered(const Symbols& symbols) {
    const Loads loads = symbols.loads();
    for (const Load& load : loads) {
      if (load.from == Load::From::kContext && !is_global(load.name)) {
        undeclared_->emplace(load.name);
      } else if (load.from == Load::From::kContext &&
                 (load.name == "cycler" || load.name == "joiner")) {
        fail_unsupported(1, {"the function ", load.name});
      }
    }
    return loads;
  }
  Symbols inner(const Frame& frame) const {
    return Symbols(run_, frame.symbols->function(), frame.symbols, (frame.level + 1) * 2);
  }

  void statements(const Body& body, const Frame& frame) {
    for (Node* const node : body) {
      statement(node, frame);
    }
  }
  void statement(Node* node, const Frame& frame);
  void if_(IfNode* node, Frame frame);
  void for_(ForNode* node, const Frame& frame);
  void with(WithNode* node, const Frame& frame);
  void macro(MacroNode* node, const Frame& frame);
  void call_block(CallBlockNode* node, const Frame& frame);
  void filter_block(FilterBlockNode* node, const Frame& frame);
  void assign_block(AssignBlockNode* node, const Frame& frame);
  void expression(Node* node, const Frame& frame);
  Node* copied_target(const Node* target);

  Run& run_;
  std::set<std::string>* undeclared_;
};

void Resolver::expression(Node* node, const Frame& frame) {
  if (node == nullptr) {
    return;
  }
  if (node->kind == NodeKind::kName) {
    NameNode* const name = static_cast<NameNode*>(node);
    name->ref = frame.symbols->ref(name->id);
    return;
  }
  if (node->kind == NodeKind::kNamespaceRef) {
    NamespaceRefNode* const ref = static_cast<NamespaceRefNode*>(node);
    ref->ref = frame.symbols->ref(ref->id);
    return;
  }
  Frame below = frame;
  below.soft |= node->kind == NodeKind::kCond;
  if (node->kind == NodeKind::kFilter || node->kind == NodeKind::kTest) {
    const FilterNode* const filter = static_cast<FilterNode*>(node);
    if (filter->function == nullptr && !frame.soft) {
      fail_at(node->line,
              {node->kind == NodeKind::kFilter ? "No filter named '" : "No test named '",
               filter->name, "'."});
    }
  }
  each_child(node, [&](Node* child) { expression(child, below); });
}

void Resolver::statement(Node* node, const Frame& frame) {
  run_.spend(1);
  switch (node->kind) {
    case NodeKind::kOutput:
      for (Node* const part : static_cast<OutputNode*>(node)->parts) {
        expression(part, frame);
      }
      break;
    case NodeKind::kAssign:
      expression(static_cast<AssignNode*>(node)->target, frame);
      expression(static_cast<AssignNode*>(node)->value, frame);
      break;
    case NodeKind::kAssignBlock:
      return assign_block(static_cast<AssignBlockNode*>(node), frame);
    case NodeKind::kFor:
      return for_(static_cast<ForNode*>(node), frame);
    case NodeKind::kIf:
      return if_(static_cast<IfNode*>(node), frame);
    case NodeKind::kWith:
      return with(static_cast<WithNode*>(node), frame);
    case NodeKind::kMacro:
      static_cast<MacroNode*>(node)->ref = frame.symbols->ref(static_cast<MacroNode*>(node)->id);
      return macro(static_cast<MacroNode*>(node), frame);
    case NodeKind::kCallBlock:
      return call_block(static_cast<CallBlockNode*>(node), frame);
    case NodeKind::kFilterBlock:
      return filter_block(static_cast<FilterBlockNode*>(node), frame);
    case NodeKind::kInclude:
      return expression(static_cast<IncludeNode*>(node)->name, frame);
    default:  // break, continue
      if (!frame.in_loop) {
        fail_at(node->line, {node->kind == NodeKind::kBreak ? "'break' outside loop"
                                                            : "'continue' not in loop"});
      }
      break;
  }
}

void Resolver::if_(IfNode* node, Frame frame) {
  const Symbols symbols = *frame.symbols;  // what the branches add stays with them
  frame.symbols = &symbols;
  frame.soft = true;
  for (const Branch& branch : node->branches) {
    expression(branch.test, frame);
    statements(branch.body, frame);
  }
}

/// The test of a loop has the loop's variables to itself.
Node* Resolver::copied_target(const Node* target) {
  run_.spend(1);
  if (target->kind == NodeKind::kTuple) {
    const ItemsNode* const tuple = static_cast<const ItemsNode*>(target);
    ItemsNode* const copy = run_.arena.make<ItemsNode>(*tuple);
    copy->items.items = run_.arena.array<Node*>(tuple->items.count);
    for (size_t i = 0; i < tuple->items.count; ++i) {
      copy->items.items[i] = copied_target(tuple->items[i]);
    }
    return copy;
  }
  return run_.arena.make<NameNode>(*static_cast<const NameNode*>(target));
}

void Resolver::for_(ForNode* node, const Frame& frame) {
  expression(node->over, frame);
  FunctionScope own;
  own.outer = frame.symbols->function();
  own.depth = static_cast<uint16_t>(own.outer->depth + 1);
  FunctionScope* const function = node->recursive ? &own : own.outer;
  const uint32_t group = (frame.level + 1) * 2;
  Symbols body(run_, function, frame.symbols, group);
  if (node->uses_loop) {
    body.declare_parameter(kLoopName);
  }
  declare_as_parameters(node->target, body);
  declare_all(node->body, body);
  if (node->test != nullptr) {
    Symbols test(run_, function, frame.symbols, group + 1);
    declare_as_parameters(node->target, test);
    declare(node->test, test);
    node->test_loads = entered(test);
    node->test_target = copied_target(node->target);
    const Frame inside{&test, frame.level + 1};
    expression(node->test_target, inside);
    expression(node->test, inside);
  }
  const Frame inside{&body, frame.level + 1, false, true};
  expression(node->target, inside);
  if (node->uses_loop) {
    node->loop_slot = body.ref(kLoopName).slot;
  }
  node->loads = entered(body);
  statements(node->body, inside);
  if (!node->otherwise.empty()) {
    Symbols otherwise(run_, function, frame.symbols, group);
    declare_all(node->otherwise, otherwise);
    node->else_loads = entered(otherwise);
    statements(node->otherwise,
               {&otherwise, frame.level + 1, false, frame.in_loop && !node->recursive});
  }
  node->slots = static_cast<uint32_t>(own.slots.size());
}

void Resolver::with(WithNode* node, const Frame& frame) {
  Symbols symbols = inner(frame);
  for (Node* const target : node->targets) {
    declare_as_parameters(target, symbols);
  }
  declare_all(node->body, symbols);
  node->loads = entered(symbols);
  const Frame inside{&symbols, frame.level + 1, false, frame.in_loop};
  for (Node* const target : node->targets) {
    expression(target, inside);
  }
  for (Node* const value : node->values) {
    expression(value, frame);
  }
  statements(node->body, inside);
}

void Resolver::macro(MacroNode* node, const Frame& frame) {
  FunctionScope function;
  function.outer = frame.symbols->function();
  function.depth = static_cast<uint16_t>(function.outer->depth + 1);
  Symbols symbols(run_, &function, frame.symbols, (frame.level + 1) * 2);
  for (NameNode* const parameter : node->parameters) {
    symbols.declare_parameter(parameter->id);
  }
  // In this order: a name that the body uses may be one that is given.
  for (const auto& [has, id] : {std::pair{node->has_caller && !node->explicit_caller, kCallerName},
                                {node->has_kwargs, kKwargsName},
                                {node->has_varargs, kVarargsName}}) {
    if (has) {
      symbols.declare_parameter(id);
    }
  }
  declare_all(node->defaults, symbols);
  declare_all(node->body, symbols);
  node->loads = entered(symbols);
  const Frame inside{&symbols, frame.level + 1};
  for (NameNode* const parameter : node->parameters) {
    parameter->ref = symbols.ref(parameter->id);
  }
  const auto slot_of = [&](bool has, uint32_t id) { return has ? symbols.ref(id).slot : 0; };
  node->caller_slot = slot_of(node->has_caller, kCallerName);
  node->kwargs_slot = slot_of(node->has_kwargs, kKwargsName);
  node->varargs_slot = slot_of(node->has_varargs, kVarargsName);
  for (Node* const value : node->defaults) {
    expression(value, inside);
  }
  statements(node->body, inside);
  node->slots = static_cast<uint32_t>(function.slots.size());
}

void Resolver::call_block(CallBlockNode* node, const Frame& frame) {
  macro(node->caller, frame);
  expression(node->call, frame);
}

void Resolver::filter_block(FilterBlockNode* node, const Frame& frame) {
  Symbols symbols = inner(frame);
  declare_all(node->body, symbols);
  declare(node->filter, symbols);
  node->loads = entered(symbols);
  const Frame inside{&symbols, frame.level + 1, false, frame.in_loop};
  statements(node->body, inside);
  expression(node->filter, inside);
}

void Resolver::assign_block(AssignBlockNode* node, const Frame& frame) {
  Symbols symbols = inner(frame);
  declare_all(node->body, symbols);
  // jinja2 leaves the filter's names out of the scope: those that no one else knows are missing.
  declare_filter(node->filter, symbols);
  node->loads = entered(symbols);
  const Frame inside{&symbols, frame.level + 1, false, frame.in_loop};
  statements(node->body, inside);
  expression(node->target, frame);
  expression(node->filter, inside);
}

}  // namespace

void resolve_names(Program* program, Run& run, std::set<std::string>* undeclared) {
  Resolver(run, undeclared).program(program);
}

bool is_global(std::string_view name) noexcept {
  for (const std::string_view global :
       {"range", "dict", "namespace", "cycler", "joiner", "raise_exception", "strftime_now"}) {
    if (name == global) {
      return true;
    }
  }
  return false;
}

}  // namespace headrace::text::jinja
