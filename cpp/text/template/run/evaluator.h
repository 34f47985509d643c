#pragma once

// Renders a program: walks through its nodes.

#include <cstdint>
#include <string>
#include <vector>

#include "text/template/library/builtin.h"
#include "text/template/syntax/ast.h"
#include "text/template/values/loop.h"
#include "text/template/values/run.h"

namespace headrace::text::jinja {

/// The variables of a function while it runs.
struct Activation {
  Value* slots = nullptr;
  Activation* outer = nullptr;
};

struct MacroValue {
  const MacroNode* node = nullptr;
  Activation* outer = nullptr;
};

struct GeneratedSpan {
  size_t begin = 0;
  size_t end = 0;
};

class Evaluator {
 public:
  Evaluator(Run& run, const Dict* variables, size_t max_output)
      : run_(run), variables_(variables), max_output_(max_output) {}

  std::string render(const Program& program);
  /// Where in the text generation blocks stand that no macro or block has captured.
  std::vector<GeneratedSpan> generated;

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // Statements (statements.cc).
  Flow execute(const Body& body, Activation* frame);
  Flow execute_one(const Node* node, Activation* frame);
  void output(const OutputNode* node, Activation* frame);
  void write(const Value& value);
  void write_text(std::string_view text);
  void write_result(const Value& value);
  void assign_node(const AssignNode* node, Activation* frame);
  Flow assign_block(const AssignBlockNode* node, Activation* frame);
  Flow if_(const IfNode* node, Activation* frame);
  Flow with(const WithNode* node, Activation* frame);
  void define_macro(const MacroNode* node, Activation* frame);
  void call_block(const CallBlockNode* node, Activation* frame);
  void generation(const CallBlockNode* node, Activation* frame);
  Flow filter_block(const FilterBlockNode* node, Activation* frame);
  void include(const IncludeNode* node, Activation* frame);
  void assign(const Node* target, const Value& value, Activation* frame);
  void unpack(const ItemsNode* target, const Value& value, Activation* frame);
  void enter(const Loads& loads, Activation* frame);
  Activation* new_frame(uint32_t slots, Activation* outer);
  Value resolve(std::string_view name);
  Value captured_since(size_t mark);

  // Loops (loops.cc).
  Flow for_(const ForNode* node, Activation* frame);
  Flow loop(const ForNode* node, Activation* frame, const Value& over, int64_t depth0);
  Flow loop_body(const ForNode* node, Activation* frame, Loop* loop, bool* completed);
  Value call_loop(const Loop& loop, const Given& given);
  struct Filtering {
    Evaluator* evaluator;
    const ForNode* node;
    Activation* frame;
  };
  static bool takes(void* context, const Value& item);

  // Expressions (expressions.cc).
  Value evaluate(const Node* node, Activation* frame);
  Value evaluate_deeper(const Node* node, Activation* frame);
  bool is_true(const Node* node, Activation* frame);
  Value name(const NameNode* node, Activation* frame);
  Value items(const ItemsNode* node, Activation* frame);
  Value dict(const DictNode* node, Activation* frame);
  Value condition(const CondNode* node, Activation* frame);
  Value concat(const ItemsNode* node, Activation* frame);
  Value compare_chain(const CompareNode* node, Activation* frame);
  Value binary(const OperatorNode* node, Activation* frame);
  Value unary(const OperatorNode* node, Activation* frame);
  Value logic(const OperatorNode* node, Activation* frame);
  Value attribute(const GetattrNode* node, Activation* frame);
  Value item(const GetitemNode* node, Activation* frame);

  // Calls (calls.cc).
  Value call(const CallNode* node, Activation* frame, const Value& caller);
  Value call_value(const Value& callee, const Given& given);
  Value call_macro(const MacroValue& macro, const Given& given);
  void bind_macro(const MacroNode* node, const Given& given, Activation* frame);
  Value filter_or_test(const FilterNode* node, Activation* frame);
  Given given(const Arguments& arguments, Activation* frame, const Value& caller);
  Given given_stars(const Arguments& arguments, Activation* frame, const Value& caller);

  Value& slot(const Ref& ref, Activation* frame) noexcept {
    for (uint16_t i = 0; i < ref.hops; ++i) {
      frame = frame->outer;
    }
    return frame->slots[ref.slot];
  }

  Run& run_;
  const Dict* variables_;
  size_t max_output_;
  std::string out_;
  int capturing_ = 0;  ///< macros and blocks whose text isn't the rendering's yet
  Value block_input_;  ///< what the innermost filter of a block filters
};

}  // namespace headrace::text::jinja
