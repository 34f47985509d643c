#include "text/template/syntax/symbols.h"

#include <algorithm>

namespace headrace::text::jinja {

uint32_t FunctionScope::slot(Run& run, uint32_t group, uint32_t id) {
  run.spend_bytes(slots.size() * sizeof(Slot));
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].group == group && slots[i].id == id) {
      return static_cast<uint32_t>(i);
    }
  }
  slots.push_back({group, id});
  return static_cast<uint32_t>(slots.size() - 1);
}

const Variable* Symbols::find(uint32_t id) const {
  for (const Symbols* scope = this; scope != nullptr; scope = scope->parent_) {
    run_->spend_bytes(scope->names_.size() * sizeof(Named));
    for (const Named& named : scope->names_) {
      if (named.id == id) {
        return &named.variable;
      }
    }
  }
  return nullptr;
}

void Symbols::set_entry(const Entry& entry) {
  for (Entry& old : entries_) {
    if (old.slot == entry.slot) {
      old = entry;
      return;
    }
  }
  entries_.push_back(entry);
}

void Symbols::define(uint32_t id, Entry entry) {
  run_->spend_bytes(names_.size() * sizeof(Named) + entries_.size() * sizeof(Entry));
  const Variable variable{function_, function_->slot(*run_, group_, id)};
  entry.slot = variable.slot;
  entry.id = id;
  for (Named& named : names_) {
    if (named.id == id) {
      named.variable = variable;
      set_entry(entry);
      return;
    }
  }
  names_.push_back({id, variable});
  set_entry(entry);
}

void Symbols::add_store(uint32_t id) {
  if (!stores(id)) {
    stores_.push_back(id);
  }
}

bool Symbols::stores(uint32_t id) const {
  run_->spend_bytes(stores_.size() * sizeof(uint32_t));
  return std::find(stores_.begin(), stores_.end(), id) != stores_.end();
}

void Symbols::store(uint32_t id, std::string_view name) {
  add_store(id);
  for (const Named& named : names_) {
    if (named.id == id) {
      return;
    }
  }
  Entry entry;
  entry.name = name;
  if (parent_ != nullptr) {
    if (const Variable* const outer = parent_->find(id)) {
      entry.from = Load::From::kOuter;
      entry.outer = *outer;
    }
  }
  define(id, entry);
}

void Symbols::declare_parameter(uint32_t id) {
  add_store(id);
  Entry entry;
  entry.from = Load::From::kParameter;
  define(id, entry);
}

void Symbols::load(uint32_t id, std::string_view name) {
  if (find(id) == nullptr) {
    Entry entry;
    entry.from = Load::From::kContext;
    entry.name = name;
    define(id, entry);
  }
}

void Symbols::update(const std::vector<Symbols>& branches) {
  std::vector<uint32_t> stored;
  for (const Symbols& branch : branches) {
    for (const uint32_t id : branch.stores_) {
      if (!stores(id) && std::find(stored.begin(), stored.end(), id) == stored.end()) {
        stored.push_back(id);
      }
    }
  }
  for (const Symbols& branch : branches) {
    run_->spend_bytes((names_.size() + entries_.size()) * (branch.names_.size() + 1));
    for (const Named& named : branch.names_) {
      const auto same = [&](const Named& mine) { return mine.id == named.id; };
      if (std::find_if(names_.begin(), names_.end(), same) == names_.end()) {
        names_.push_back(named);
      }
    }
    for (const Entry& entry : branch.entries_) {
      set_entry(entry);
    }
    for (const uint32_t id : branch.stores_) {
      add_store(id);
    }
  }
  // What only some branches set is the outer variable otherwise.
  for (const uint32_t id : stored) {
    const auto mine = std::find_if(entries_.begin(), entries_.end(),
                                   [&](const Entry& entry) { return entry.id == id; });
    if (mine == entries_.end()) {
      continue;
    }
    const Variable* const outer = parent_ != nullptr ? parent_->find(id) : nullptr;
    mine->from = outer != nullptr ? Load::From::kOuter : Load::From::kContext;
    if (outer != nullptr) {
      mine->outer = *outer;
    }
  }
}

Ref Symbols::ref_to(const Variable& variable) const noexcept {
  Ref ref;
  ref.hops = static_cast<uint16_t>(function_->depth - variable.function->depth);
  ref.slot = variable.slot;
  return ref;
}

Ref Symbols::ref(uint32_t id) const {
  const Variable* const variable = find(id);
  return variable != nullptr ? ref_to(*variable) : Ref();
}

Loads Symbols::loads() const {
  Loads loads{run_->arena.array<Load>(entries_.size()), 0};
  for (const Entry& entry : entries_) {
    if (entry.from == Load::From::kParameter) {
      continue;
    }
    Load& load = loads.items[loads.count++];
    load.slot = entry.slot;
    load.from = entry.from;
    load.name = entry.name;
    if (entry.from == Load::From::kOuter) {
      load.outer = ref_to(entry.outer);
    }
  }
  return loads;
}

}  // namespace headrace::text::jinja
