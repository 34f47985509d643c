#pragma once

// Schemas as rules of a program: one for each set of schemas that hold together.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/automaton/program.h"
#include "grammar/schema/leaves.h"
#include "grammar/schema/options.h"
#include "grammar/schema/schema_text.h"
#include "grammar/schema/strings.h"

namespace headrace::grammar {

class Rules {
 public:
  Rules(const SchemaText& text, size_t max_nodes, Expressions* expressions, Chars* chars,
        Budget* budget);

  /// The whole schema. Throws Error: kInvalidArgument, kUnsupported, kLimitExceeded.
  Program make(NodeId* start);

 private:
  struct ObjectParts;
  /// Where a name begins in an object that has so many properties: a menu for each name that may
  /// be the next. All lists begin with the last name.
  struct Menus {
    struct Named {
      std::string text;  ///< as a string of JSON, behind its first quotation mark
      bool required;
    };
    std::shared_ptr<const std::vector<Named>> names;  ///< of the object
    std::vector<NodeId> taken;                        ///< what comes behind each name
    std::vector<NodeId> menus;
    NodeId otherwise;  ///< other names
  };

  /// The rule of some schemas, which is made later.
  NodeId rule(const Schemas& schemas);
  void make_waiting();
  void check_exclusive();
  NodeId branches(const std::vector<Schemas>& leaves);
  NodeId leaf(const Schemas& schemas);

  // rules.cc
  Expr scalars(const Schemas& leaf, unsigned kinds);
  std::optional<std::vector<const Value*>> listed(const Schemas& leaf) const;
  std::string text_of(const Value& value) const;
  unsigned kinds(const Schemas& leaf);
  using Texts = std::vector<std::vector<Expr>>;
  void add_texts(const Schemas& leaf, const std::vector<const Value*>& values, Texts* out);
  bool allows_strings(const Schemas& leaf) const;
  void check_plain(const Schemas& leaf) const;
  void spell(const Value& value, std::vector<Expr>* out);
  void spell_text(std::string_view text, std::vector<Expr>* out);

  // array_rules.cc
  NodeId array(const Schemas& leaf);
  Schemas item(const Schemas& leaf, size_t place) const;
  size_t own_places(const Schemas& leaf) const;
  NodeId more_items(const Schemas& leaf, size_t place, uint32_t least, uint32_t most);

  // object_rules.cc
  NodeId object(const Schemas& leaf);
  ObjectParts object_parts(const Schemas& leaf);
  void add_patterns(ObjectParts* parts);
  void add_names(ObjectParts* parts);
  void add_others(ObjectParts* parts, size_t pattern, Expr name, std::vector<bool>* matching);
  Schemas values(const ObjectParts& parts, const std::string* name,
                 const std::vector<bool>& matching);
  Expr property_names(const Schemas& leaf);
  NodeId turn(bool first, NodeId name, NodeId close);
  NodeId other_names(const ObjectParts& parts, uint32_t before, NodeId close);
  void write_menus();
  std::vector<Expr> menu_texts(const std::vector<Menus::Named>& names,
                               const std::vector<bool>& live);

  NodeId lexeme(std::initializer_list<Expr> parts, NodeId next) {
    const Expr whole = e_.concat(parts);
    e_.pay(&budget_);
    return program_.match(whole, next);
  }

  const SchemaText& text_;
  Expressions& e_;
  Budget& budget_;
  const Punctuation marks_;
  const Expr first_name_;  ///< up to where a name begins
  const Expr next_name_;
  const Expr colon_;  ///< between a name and its value
  Strings strings_;
  Leaves leaves_;
  Program program_;
  NodeId end_;      ///< of any rule
  NodeId nothing_;  ///< what nothing meets
  std::map<Schemas, NodeId> rules_;
  std::map<Schemas, NodeId> leaf_rules_;
  std::vector<std::pair<Schemas, NodeId>> waiting_;
  std::vector<Menus> menus_;                                ///< to be written
  std::vector<std::pair<const Value*, NodeId>> exclusive_;  ///< nothing may meet these
};

}  // namespace headrace::grammar
