#pragma once

// Tokens to nodes, as jinja2's parser with the extensions loopcontrols and generation.

#include <initializer_list>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/template/syntax/ast.h"
#include "text/template/syntax/lexer.h"
#include "text/template/values/run.h"

namespace headrace::text::jinja {

/// Names that mean something within a macro or a loop have fixed numbers.
enum SpecialName : uint32_t { kLoopName, kCallerName, kKwargsName, kVarargsName, kSelfName };
inline constexpr uint32_t kSpecialNames = 5;

class Parser {
 public:
  /// `run`: its arena gets the nodes.
  Parser(std::string_view source, Run& run);

  /// Names are not resolved yet (scopes.h). Throws Fault.
  Program parse();

 private:
  using Names = std::initializer_list<std::string_view>;
  template <class T>
  using Growing = std::vector<T>;

  // Tokens.
  const LexedToken& now() const noexcept { return tokens_[at_]; }
  const LexedToken& ahead() const noexcept { return tokens_[at_ + (at_ + 1 < tokens_.size())]; }
  bool is(Token kind) const noexcept { return now().kind == kind; }
  bool is_name(std::string_view name) const noexcept {
    return is(Token::kName) && now().text == name;
  }
  bool is_any_name(Names names) const noexcept;
  LexedToken take() noexcept { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool skip_if(Token kind) noexcept;
  bool skip_if_name(std::string_view name) noexcept;
  LexedToken expect(Token kind, std::string_view described);
  LexedToken expect_name(std::string_view name);
  LexedToken expect_any_name() { return expect(Token::kName, "name"); }
  [[noreturn]] void unexpected(const LexedToken& token) const;
  std::string_view described_now() const noexcept;

  // Nodes.
  template <class T>
  T* make(NodeKind kind, uint32_t line) {
    run_.spend(1);
    T* const node = run_.arena.make<T>();
    node->kind = kind;
    node->line = line;
    return node;
  }
  template <class T>
  Span<T> spanned(const Growing<T>& items) {
    Span<T> span{run_.arena.array<T>(items.size()), static_cast<uint32_t>(items.size())};
    for (size_t i = 0; i < items.size(); ++i) {
      span.items[i] = items[i];
    }
    return span;
  }
  void above(Node* node, const Node* child);
  void above(Node* node, const Arguments& arguments);
  uint32_t id_of(std::string_view name);
  NameNode* make_name(const LexedToken& token, NameUse use);
  void mention(uint32_t id, bool loads);

  // Statements (parse_statements.cc).
  Body subparse(Names end);
  Body statements(Names end, bool drop_end);
  [[noreturn]] void fail_end(std::string_view unknown_tag, uint32_t line) const;
  Node* statement();
  Node* for_();
  Node* if_();
  Node* set();
  Node* with();
  Node* macro();
  Node* call_block();
  Node* generation();
  Node* filter_block();
  Node* print();
  Node* include(std::string_view tag);
  Node* import_names(IncludeNode* node);
  void skip_import_context();
  void signature(MacroNode* node);
  void macro_body(MacroNode* node, Names end);

  // Expressions (parse_expressions.cc).
  Node* target(bool with_namespace, std::string_view end_name);
  NameNode* name_target(NameUse use);
  Node* as_target(Node* node);
  Node* expression(bool with_condition = true);
  Node* condition();
  Node* level(int least);
  Node* compare(Node* first);
  Node* concat(Node* first);
  Node* unary(bool with_filter);
  Node* primary(bool with_namespace, NameUse use = NameUse::kLoad);
  Node* literal();
  Node* strings();
  struct TupleForm {
    bool simplified = false;
    bool with_condition = true;
    bool parentheses = false;
    bool with_namespace = false;
    std::string_view end_name = {};
  };
  Node* tuple(const TupleForm& form);
  Node* list();
  Node* dict();
  Node* postfix(Node* node);
  Node* filters_and_tests(Node* node);
  Node* subscript(Node* node);
  Node* subscribed();
  Node* call(Node* callee);
  Arguments call_arguments();
  void call_argument(Arguments* arguments, Growing<Node*>* positional, Growing<Keyword>* named,
                     uint32_t line);
  FilterNode* filter(Node* of);
  Node* test(Node* of);
  std::string_view dotted_name();

  /// Who wants to know whether a special name is read in what is being parsed.
  struct Watch {
    bool read[kSpecialNames] = {};
    bool hidden[kSpecialNames] = {};  ///< stored before it was read
  };
  class Watching {
   public:
    explicit Watching(Parser& parser) : parser_(parser) { parser.watches_.emplace_back(); }
    ~Watching() { parser_.watches_.pop_back(); }
    bool read(uint32_t id) const { return parser_.watches_.back().read[id]; }

   private:
    Parser& parser_;
  };

  Run& run_;
  std::vector<LexedToken> tokens_;
  size_t at_ = 0;
  std::unordered_map<std::string_view, uint32_t> ids_;
  std::vector<Watch> watches_;
  std::vector<std::string_view> open_tags_;
  std::vector<std::vector<std::string_view>> wanted_ends_;
  std::vector<uint32_t> loop_stores_;  ///< lines where something named loop is set
};

}  // namespace headrace::text::jinja
