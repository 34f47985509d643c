#pragma once

// A parsed template: nodes in an arena, which don't change once names are resolved.

#include <cstdint>
#include <string_view>

#include "text/template/values/value.h"

namespace headrace::text::jinja {

struct Builtin;

template <class T>
struct Span {
  T* items = nullptr;
  uint32_t count = 0;

  T* begin() const noexcept { return items; }
  T* end() const noexcept { return items + count; }
  bool empty() const noexcept { return count == 0; }
  T& operator[](size_t i) const noexcept { return items[i]; }
};

// clang-format off
enum class NodeKind : uint8_t {
  kConst, kName, kNamespaceRef, kTuple, kList, kDict, kCond, kAnd, kOr, kNot, kNegative, kPositive,
  kBinary, kConcat, kCompare, kGetattr, kGetitem, kSlice, kCall, kFilter, kTest,
  kOutput, kAssign, kAssignBlock, kFor, kIf, kWith, kMacro, kCallBlock, kFilterBlock,
  kBreak, kContinue, kInclude,
};
// clang-format on

struct Node {
  NodeKind kind;
  uint16_t height = 1;  ///< of the tree below
  uint32_t line = 0;
};

/// A variable's place: how many functions out, and which of its slots.
struct Ref {
  uint16_t hops = 0;
  uint32_t slot = 0;
};

/// What a variable gets when its frame is entered.
struct Load {
  enum class From : uint8_t { kParameter, kContext, kOuter, kNothing };
  uint32_t slot = 0;
  From from = From::kNothing;
  Ref outer;              ///< kOuter
  std::string_view name;  ///< kContext
};
using Loads = Span<Load>;

// Expressions.

struct ConstNode : Node {
  Value value;
};
enum class NameUse : uint8_t { kLoad, kStore, kParameter };
struct NameNode : Node {
  NameUse use = NameUse::kLoad;
  uint32_t id = 0;
  std::string_view name;
  Ref ref;
};
struct NamespaceRefNode : Node {
  uint32_t id = 0;
  std::string_view name;
  std::string_view attribute;
  Ref ref;
};
/// Tuples, lists, and what ~ joins.
struct ItemsNode : Node {
  Span<Node*> items;
};
struct Pair {
  Node* key = nullptr;
  Node* value = nullptr;
};
struct DictNode : Node {
  Span<Pair> pairs;
};
struct CondNode : Node {
  Node* test = nullptr;
  Node* yes = nullptr;
  Node* no = nullptr;  ///< may be null
};
/// And, or, not, -x, +x (left only), binary operators.
enum class Operation : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
struct OperatorNode : Node {
  Operation operation = Operation::kAdd;
  Node* left = nullptr;
  Node* right = nullptr;
};
enum class Comparison : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };
struct Operand {
  Comparison comparison = Comparison::kEq;
  Node* node = nullptr;
};
struct CompareNode : Node {
  Node* first = nullptr;
  Span<Operand> operands;
};
struct GetattrNode : Node {
  Node* of = nullptr;
  std::string_view name;
};
struct GetitemNode : Node {
  Node* of = nullptr;
  Node* item = nullptr;
};
/// Each part may be null.
struct SliceNode : Node {
  Node* start = nullptr;
  Node* stop = nullptr;
  Node* step = nullptr;
};
struct Keyword {
  std::string_view name;
  Node* value = nullptr;
};
struct Arguments {
  Span<Node*> positional;
  Span<Keyword> named;
  Node* star = nullptr;
  Node* star_star = nullptr;
};
struct CallNode : Node {
  Node* callee = nullptr;
  Arguments arguments;
};
/// A filter or a test. `of`: null in a filter block.
struct FilterNode : Node {
  Node* of = nullptr;
  std::string_view name;
  const Builtin* function = nullptr;  ///< null: there is none of that name
  Arguments arguments;
};

// Statements.

using Body = Span<Node*>;

/// Texts are constants.
struct OutputNode : Node {
  Body parts;
};
struct AssignNode : Node {
  Node* target = nullptr;
  Node* value = nullptr;
};
struct AssignBlockNode : Node {
  Node* target = nullptr;
  FilterNode* filter = nullptr;  ///< the outermost; may be null
  Body body;
  Loads loads;
};
struct ForNode : Node {
  Node* target = nullptr;
  Node* over = nullptr;
  Node* test = nullptr;
  bool recursive = false;
  bool uses_loop = false;
  Body body;
  Body otherwise;
  uint32_t loop_slot = 0;
  uint32_t slots = 0;           ///< recursive: those of its own function
  Node* test_target = nullptr;  ///< the target as the test sees it
  Loads loads;
  Loads test_loads;
  Loads else_loads;
};
struct Branch {
  Node* test = nullptr;  ///< null: else
  Body body;
};
struct IfNode : Node {
  Span<Branch> branches;
};
struct WithNode : Node {
  Span<Node*> targets;
  Span<Node*> values;
  Body body;
  Loads loads;
};
/// A macro, or the body of a call block.
struct MacroNode : Node {
  std::string_view name;  ///< empty: a call block's
  uint32_t id = 0;
  Ref ref;
  Span<NameNode*> parameters;
  Span<Node*> defaults;  ///< of the last parameters
  Body body;
  bool has_caller = false;
  bool has_kwargs = false;
  bool has_varargs = false;
  bool explicit_caller = false;
  uint32_t caller_slot = 0;
  uint32_t kwargs_slot = 0;
  uint32_t varargs_slot = 0;
  uint32_t slots = 0;
  Loads loads;
};
struct CallBlockNode : Node {
  CallNode* call = nullptr;  ///< null: {% generation %}
  MacroNode* caller = nullptr;
};
struct FilterBlockNode : Node {
  FilterNode* filter = nullptr;
  Body body;
  Loads loads;
};
/// include, extends, import, from ... import: there is nothing to load from.
struct IncludeNode : Node {
  Node* name = nullptr;
  Span<NameNode*> targets;
};

struct Program {
  Body body;
  Loads loads;
  uint32_t slots = 0;
};

}  // namespace headrace::text::jinja
