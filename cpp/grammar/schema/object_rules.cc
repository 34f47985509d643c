#include <algorithm>
#include <array>

#include "grammar/schema/name_tree.h"
#include "grammar/schema/rules.h"

namespace headrace::grammar {

namespace {

constexpr size_t kMostOthers = 64;

void add_once(const Value* schema, Schemas* out) {
  if (std::ranges::find(*out, schema) == out->end()) out->push_back(schema);
}

bool is_false(const Value* schema) { return schema->boolean() != nullptr && !*schema->boolean(); }

}  // namespace

/// What an object may have in it.
struct Rules::ObjectParts {
  struct Pattern {
    const std::string* text;
    Expr names;
  };
  struct Named {
    const std::string* name;
    bool required;
    NodeId value;
  };
  /// Properties without a name of their own.
  struct Others {
    Expr name;
    NodeId value;
  };
  const Schemas& leaf;
  std::vector<Pattern> patterns;
  std::vector<Named> names;
  std::vector<Others> others;
  uint32_t least = 0;
  uint32_t most = SchemaText::kHuge;
};

Rules::ObjectParts Rules::object_parts(const Schemas& leaf) {
  ObjectParts parts{.leaf = leaf, .patterns = {}, .names = {}, .others = {}};
  for (const Value* const schema : leaf) {
    if (const auto count = text_.count(*schema, "minProperties")) {
      parts.least = std::max(parts.least, *count);
    }
    if (const auto count = text_.count(*schema, "maxProperties")) {
      parts.most = std::min(parts.most, *count);
    }
  }
  add_patterns(&parts);
  add_names(&parts);
  return parts;
}

void Rules::add_patterns(ObjectParts* parts) {
  for (const Value* const schema : parts->leaf) {
    const Value::Object* const own = text_.object(*schema, "patternProperties");
    if (own == nullptr) continue;
    for (const auto& [pattern, value] : *own) {
      budget_.step(parts->patterns.size() + 1);
      const bool known = std::ranges::any_of(
          parts->patterns, [&](const auto& other) { return *other.text == pattern; });
      if (known) continue;
      parts->patterns.push_back(
          {&pattern, strings_.pattern(*schema, "patternProperties", pattern)});
    }
  }
}

/// Names in the order of the schemas, then those that are only required; then all others.
void Rules::add_names(ObjectParts* parts) {
  std::vector<const std::string*> order;
  std::map<std::string_view, bool> known;  // and whether they are required
  const auto add = [&](const std::string& name, bool required) {
    const auto [found, is_new] = known.try_emplace(name, false);
    found->second = found->second || required;
    if (is_new) order.push_back(&name);
  };
  for (const Value* const schema : parts->leaf) {
    const Value::Object* const own = text_.object(*schema, "properties");
    if (own == nullptr) continue;
    for (const Value::Member& member : *own) add(member.first, false);
  }
  for (const Value* const schema : parts->leaf) {
    const Value::List* const own = text_.list(*schema, "required");
    if (own == nullptr) continue;
    for (const Value& name : *own) {
      if (name.string() == nullptr) text_.wrong(*schema, "required", "must be a list of strings");
      add(*name.string(), true);
    }
  }
  const Expr allowed = property_names(parts->leaf);
  std::vector<Expr> taken;
  std::vector<bool> matching(parts->patterns.size());
  std::vector<std::string> texts;
  for (const std::string* const name : order) texts.push_back(quoted_text(*name));
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t j = 0; j < matching.size(); ++j) {
      matching[j] = e_.matches(parts->patterns[j].names, texts[i], &budget_);
    }
    const bool fits = e_.matches(allowed, texts[i], &budget_);
    const NodeId value = fits ? rule(values(*parts, order[i], matching)) : nothing_;
    parts->names.push_back({order[i], known[*order[i]], value});
  }
  const Expr free =
      order.empty() ? allowed
                    : e_.both({allowed, e_.complement(e_.literals({texts.begin(), texts.end()}))});
  e_.pay(&budget_);
  std::vector<bool> none;
  add_others(parts, 0, free, &none);
}

/// Splits the names that are left by which patterns they match.
void Rules::add_others(ObjectParts* parts, size_t pattern, Expr name, std::vector<bool>* matching) {
  budget_.step();
  if (!e_.alive(name, &budget_)) return;
  if (pattern < parts->patterns.size()) {
    const Expr names = parts->patterns[pattern].names;
    for (const bool matches : {true, false}) {
      matching->push_back(matches);
      add_others(parts, pattern + 1, e_.both({name, matches ? names : e_.complement(names)}),
                 matching);
      matching->pop_back();
    }
    return;
  }
  const Schemas own = values(*parts, nullptr, *matching);
  if (std::ranges::any_of(own, is_false)) return;
  if (parts->others.size() >= kMostOthers) {
    text_.unsupported(*parts->leaf.front(), "patternProperties",
                      "has patterns that match too many of the same names");
  }
  parts->others.push_back({name, rule(own)});
}

/// What holds for the value of a property. name: null if it is none of the names.
Schemas Rules::values(const ObjectParts& parts, const std::string* name,
                      const std::vector<bool>& matching) {
  Schemas out;
  for (const Value* const schema : parts.leaf) {
    constexpr size_t kNamesPerStep = 64;
    budget_.step(schema->object()->size() / kNamesPerStep + matching.size() + 1);
    bool is_known = false;
    const auto add = [&](const Value* value) {
      is_known = true;
      add_once(value, &out);
    };
    const Value* const named = schema->find("properties");
    if (named != nullptr && name != nullptr) {
      budget_.step(named->object()->size() / kNamesPerStep);
      if (const Value* const own = named->find(*name)) add(own);
    }
    const Value* const patterns = schema->find("patternProperties");
    for (size_t i = 0; patterns != nullptr && i < matching.size(); ++i) {
      const Value* const value = matching[i] ? patterns->find(*parts.patterns[i].text) : nullptr;
      if (value != nullptr) add(value);
    }
    const Value* const others = schema->find("additionalProperties");
    if (!is_known && others != nullptr) add_once(others, &out);
  }
  return out;
}

/// Names that propertyNames allow.
Expr Rules::property_names(const Schemas& leaf) {
  std::vector<Expr> all = {strings_.any()};
  for (const Value* const schema : leaf) {
    const Value* const names = schema->find("propertyNames");
    if (names == nullptr) continue;
    std::vector<Expr> parts;
    for (const Schemas& own : leaves_.of({names})) {
      if (!allows_strings(own)) continue;
      const auto values = listed(own);
      if (!values) {
        parts.push_back(strings_.of(own));
        continue;
      }
      const Expr others = strings_.of(own);
      Texts texts;
      for (const Value* const value : *values) {
        if (value->string() == nullptr) continue;
        const std::string text = quoted_text(*value->string());
        if (e_.matches(others, text, &budget_)) spell_text(text, &texts.emplace_back());
        e_.pay(&budget_);
      }
      parts.push_back(e_.any_of(std::move(texts)));
    }
    all.push_back(e_.choice(std::move(parts)));
  }
  return e_.both(std::move(all));
}

/// What may come behind a value, or first: a name, or the end.
NodeId Rules::turn(bool first, NodeId name, NodeId close) {
  return program_.split(std::array{program_.match(first ? first_name_ : next_name_, name), close});
}

/// From the back, place by place: after so many names, with so many properties (or more of them
/// than any bound asks for), what may come.
NodeId Rules::object(const Schemas& leaf) {
  const ObjectParts parts = object_parts(leaf);
  // No object has so many. Guards take it for granted that some number will do.
  if (parts.least > parts.most) return nothing_;
  const bool bounded = parts.most != SchemaText::kHuge;
  const size_t cap = std::max({size_t{1}, size_t{parts.least}, size_t{bounded ? parts.most : 0}});
  const size_t count = parts.names.size();
  NodeId close = lexeme({marks_.space, e_.byte('}')}, end_);
  const auto end = [&](size_t had) { return had >= parts.least ? close : nothing_; };
  const auto names = std::make_shared<std::vector<Menus::Named>>();
  std::vector<Menus> menus;
  std::vector<NodeId> next;
  for (size_t had = 0; had <= std::min(count, cap); ++had) {
    const NodeId others = other_names(parts, static_cast<uint32_t>(had), close);
    menus.push_back({.names = names, .taken = {}, .menus = {}, .otherwise = others});
    next.push_back(turn(had == 0, others, end(had)));
  }
  for (size_t place = count; place-- > 0;) {
    const ObjectParts::Named& named = parts.names[place];
    names->push_back({quoted_text(*named.name) + '"', named.required});
    if (named.required) close = nothing_;
    const NodeId value = program_.match(colon_, program_.call(named.value, end_));
    std::vector<NodeId> now;
    for (size_t had = 0; had <= std::min(place, cap); ++had) {
      Menus& own = menus[had];
      const NodeId last = own.menus.empty() ? own.otherwise : own.menus.back();
      own.taken.push_back(had < parts.most ? program_.call(value, next[std::min(had + 1, cap)])
                                           : nothing_);
      own.menus.push_back(program_.menu(own.taken.back(), named.required ? nothing_ : last));
      now.push_back(turn(had == 0, own.menus.back(), end(had)));
    }
    next = std::move(now);
  }
  menus_.insert(menus_.end(), menus.begin(), menus.end());
  return lexeme({e_.byte('{')}, next.front());
}

/// Where a name begins, behind all names and with `before` properties: the others, in any order.
NodeId Rules::other_names(const ObjectParts& parts, uint32_t before, NodeId close) {
  if (before >= parts.most || parts.others.empty()) return nothing_;
  const uint32_t fewest = parts.least > before ? parts.least - before : 0;
  const bool bounded = parts.most != SchemaText::kHuge;
  const uint32_t limit = bounded ? parts.most - before : kUnbounded;
  const NodeId again = program_.jump();
  std::vector<NodeId> choices;
  for (const ObjectParts::Others& others : parts.others) {
    choices.push_back(
        lexeme({others.name, e_.byte('"'), colon_}, program_.call(others.value, again)));
  }
  const NodeId name = program_.split(choices);
  const NodeId more = limit > 1 ? turn(false, name, nothing_) : nothing_;
  const NodeId later[] = {program_.guard(fewest, kUnbounded, close),
                          bounded ? program_.guard(0, limit - 1, more) : more};
  program_.land(again, program_.count(bounded ? limit : fewest, program_.split(later)));
  return name;
}

/// Now that it is known which values there can be.
void Rules::write_menus() {
  const Menus* last = nullptr;
  std::vector<bool> live;
  std::vector<Expr> texts;
  for (const Menus& menus : menus_) {
    std::vector<bool> own;
    for (const NodeId taken : menus.taken) own.push_back(program_.node(taken).productive);
    // Most often only the number of properties sets menus of an object apart.
    const bool known = last != nullptr && last->names == menus.names && own.size() <= live.size() &&
                       std::equal(own.begin(), own.end(), live.begin());
    if (!known) {
      texts = menu_texts(*menus.names, own);
      live = std::move(own);
      last = &menus;
    }
    const uint32_t list = program_.list(menus.taken);
    NodeId otherwise = menus.otherwise;
    for (size_t i = 0; i < menus.menus.size(); ++i) {
      budget_.step();
      if ((*menus.names)[i].required) otherwise = nothing_;
      program_.write(menus.menus[i], texts[i], list, otherwise);
    }
  }
}

/// For each name, from the last one: it and those that may come in its place.
std::vector<Expr> Rules::menu_texts(const std::vector<Menus::Named>& names,
                                    const std::vector<bool>& live) {
  NameTree tree(&e_);
  std::vector<Expr> out;
  for (size_t i = 0; i < live.size(); ++i) {
    if (names[i].required) tree.clear();
    if (live[i]) tree.add(names[i].text, e_.mark(static_cast<uint32_t>(i)));
    e_.pay(&budget_);
    out.push_back(tree.whole());
  }
  return out;
}

}  // namespace headrace::grammar
