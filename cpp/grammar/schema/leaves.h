#pragma once

// allOf, anyOf, oneOf and $ref, taken apart.

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "grammar/automaton/budget.h"
#include "grammar/schema/schema_text.h"

namespace headrace::grammar {

/// Finds what schemas that hold together come to. Each leaf is a set of schemas whose own keywords
/// hold together; a value meets the whole if it meets one of the leaves.
class Leaves {
 public:
  /// coerce_one_of: oneOf is taken as anyOf.
  Leaves(const SchemaText& text, bool coerce_one_of, Budget* budget)
      : text_(text), coerce_one_of_(coerce_one_of), budget_(*budget) {}

  /// Throws Error: kInvalidArgument, kUnsupported; kLimitExceeded for too many.
  std::vector<Schemas> of(const Schemas& schemas);

  /// Branches of a oneOf, which nothing may meet both.
  struct Exclusive {
    const Value* owner;
    Schemas pair;
  };
  /// Those met since the last call.
  std::vector<Exclusive> take_exclusive() { return std::exchange(exclusive_, {}); }

 private:
  /// A schema that is still to be looked at, and what led to it (an index into steps_).
  struct Step {
    const Value* schema;
    size_t from;
  };

  /// One way through the choices, as far as it has come.
  struct Way {
    std::vector<size_t> waiting;  ///< steps, the next one last
    /// That are still to be made. Shared: they may be long, and ways are many.
    std::vector<std::shared_ptr<const std::vector<size_t>>> choices;
    Schemas seen;
    Schemas leaf;
  };

  static constexpr size_t kNowhere = static_cast<size_t>(-1);

  void expand(Way way, int depth, std::vector<Schemas>* out);
  /// false: nothing meets it.
  bool look_at(size_t step, Way* way);
  size_t add(const Value& owner, std::string_view keyword, const Value& schema, size_t from);
  /// The schemas in a list; none if there is no such list.
  std::vector<size_t> listed(std::string_view keyword, size_t from);
  void note_exclusive(const Value& schema);

  const Value& target(const Value& schema, const std::string& reference);

  const SchemaText& text_;
  const bool coerce_one_of_;
  Budget& budget_;
  std::vector<Step> steps_;
  std::unordered_map<const Value*, const Value*> targets_;  ///< by the schema with the $ref
  std::unordered_set<const Value*> checked_;
  std::unordered_set<const Value*> noted_;  ///< whose branches are in exclusive_, or were
  std::vector<Exclusive> exclusive_;
};

}  // namespace headrace::grammar
