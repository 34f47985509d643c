#pragma once

// The names of one scope, and what they mean there: as jinja2's idtracking has it. A name that is
// set anywhere in a scope belongs to that scope, with the outer variable's value as it is when the
// scope is entered; others mean an outer scope's variable, or one of the caller's.

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/template/syntax/ast.h"
#include "text/template/values/run.h"

namespace headrace::text::jinja {

/// What has variables of its own while it runs: the template, a macro, a recursive loop.
struct FunctionScope {
  FunctionScope* outer = nullptr;
  uint16_t depth = 0;
  struct Slot {
    uint32_t group;  ///< scopes side by side share their variables, tests of loops don't
    uint32_t id;
  };
  std::vector<Slot> slots;

  uint32_t slot(Run& run, uint32_t group, uint32_t id);
};

struct Variable {
  const FunctionScope* function = nullptr;
  uint32_t slot = 0;

  friend bool operator==(const Variable&, const Variable&) = default;
};

class Symbols {
 public:
  Symbols(Run& run, FunctionScope* function, const Symbols* parent, uint32_t group)
      : run_(&run), function_(function), parent_(parent), group_(group) {}

  void store(uint32_t id, std::string_view name);
  void declare_parameter(uint32_t id);
  void load(uint32_t id, std::string_view name);
  /// After branches that began as copies of this.
  void update(const std::vector<Symbols>& branches);

  /// REQUIRES: the name was met here or further out.
  Ref ref(uint32_t id) const;
  Loads loads() const;
  bool stores(uint32_t id) const;
  FunctionScope* function() const noexcept { return function_; }
  uint32_t group() const noexcept { return group_; }

 private:
  struct Named {
    uint32_t id = 0;
    Variable variable;
  };
  struct Entry {
    uint32_t slot = 0;
    uint32_t id = 0;
    Load::From from = Load::From::kNothing;
    Variable outer;
    std::string_view name;
  };
  const Variable* find(uint32_t id) const;
  void define(uint32_t id, Entry entry);
  void set_entry(const Entry& entry);
  void add_store(uint32_t id);
  Ref ref_to(const Variable& variable) const noexcept;

  Run* run_;
  FunctionScope* function_;
  const Symbols* parent_;
  uint32_t group_;
  std::vector<Named> names_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> stores_;
};

}  // namespace headrace::text::jinja
