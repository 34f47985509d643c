#include "grammar/schema/rules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "grammar/schema/keywords.h"
#include "grammar/schema/numbers.h"
#include "grammar/schema/schema.h"

namespace headrace::grammar {

namespace {

// What kinds of values there are: a number is whole or broken.
constexpr unsigned kNull = 1;
constexpr unsigned kBool = 2;
constexpr unsigned kWhole = 4;
constexpr unsigned kBroken = 8;
constexpr unsigned kString = 16;
constexpr unsigned kArray = 32;
constexpr unsigned kObject = 64;
constexpr unsigned kAll = 127;

unsigned kind_named(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, unsigned>, 7> kNames = {{
      {"null", kNull},
      {"boolean", kBool},
      {"integer", kWhole},
      {"number", kWhole | kBroken},
      {"string", kString},
      {"array", kArray},
      {"object", kObject},
  }};
  const auto* const found =
      std::ranges::find(kNames, name, [](const auto& one) { return one.first; });
  return found == kNames.end() ? 0 : found->second;
}

unsigned kind_of(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kNull:
      return kNull;
    case Value::Kind::kBool:
      return kBool;
    case Value::Kind::kInt:
      return kWhole;
    case Value::Kind::kFloat:
      return *value.real() == std::floor(*value.real()) ? kWhole : kBroken;
    case Value::Kind::kString:
      return kString;
    case Value::Kind::kList:
      return kArray;
    case Value::Kind::kObject:
      return kObject;
  }
  return 0;
}

/// Without white space: equal values have equal texts if their keys are in one order.
std::string plain_text(const Value& value) {
  std::string out;
  if (const Value::List* const list = value.list()) {
    for (const Value& item : *list) out += (out.empty() ? "[" : ",") + plain_text(item);
    return out.empty() ? "[]" : out + "]";
  }
  if (const Value::Object* const object = value.object()) {
    for (const auto& [key, member] : *object) {
      out += (out.empty() ? "{\"" : ",\"") + quoted_text(key) + "\":" + plain_text(member);
    }
    return out.empty() ? "{}" : out + "}";
  }
  if (value.string() != nullptr) return '"' + quoted_text(*value.string()) + '"';
  if (value.boolean() != nullptr) return *value.boolean() ? "true" : "false";
  return value.is_null() ? "null" : number_text(value);
}

unsigned kinds_of(const SchemaText& text, const Value& schema) {
  const Value* const type = schema.find("type");
  if (type == nullptr) return kAll;
  unsigned out = 0;
  const auto add = [&](const Value& name) {
    const unsigned kind = name.string() == nullptr ? 0 : kind_named(*name.string());
    if (kind == 0) text.wrong(schema, "type", "is no type of JSON: " + plain_text(name));
    out |= kind;
  };
  if (type->list() == nullptr) {
    add(*type);
  } else {
    std::ranges::for_each(*type->list(), add);
  }
  if (const Value* const nullable = schema.find("nullable")) {
    if (nullable->boolean() == nullptr) text.wrong(schema, "nullable", "must be true or false");
    if (*nullable->boolean()) out |= kNull;
  }
  return out;
}

}  // namespace

Rules::Rules(const SchemaText& text, size_t max_nodes, Expressions* expressions, Chars* chars,
             Budget* budget)
    : text_(text),
      e_(*expressions),
      budget_(*budget),
      marks_(read_punctuation(text, expressions, chars, budget)),
      first_name_(e_.concat(marks_.space, e_.byte('"'))),
      next_name_(e_.concat({marks_.space, marks_.comma, first_name_})),
      colon_(e_.concat({marks_.space, marks_.colon, marks_.space})),
      strings_(text, expressions, chars, budget),
      leaves_(text, marks_.coerce_one_of, budget),
      program_(max_nodes),
      end_(program_.finish()),
      nothing_(program_.split({})) {}

Program Rules::make(NodeId* start) {
  *start = program_.call(rule({&text_.root()}), end_);
  make_waiting();
  program_.link(&e_, &budget_);
  check_exclusive();
  write_menus();
  if (!program_.node(*start).productive) {
    throw_error(ErrorCode::kInvalidArgument, "no finite JSON meets it");
  }
  return std::move(program_);
}

NodeId Rules::rule(const Schemas& schemas) {
  const auto [found, is_new] = rules_.try_emplace(schemas, 0);
  if (is_new) {
    found->second = program_.jump();
    waiting_.emplace_back(schemas, found->second);
  }
  return found->second;
}

void Rules::make_waiting() {
  while (!waiting_.empty()) {
    const auto [schemas, jump] = std::move(waiting_.back());
    waiting_.pop_back();
    program_.land(jump, branches(leaves_.of(schemas)));
    for (const Leaves::Exclusive& pair : leaves_.take_exclusive()) {
      exclusive_.emplace_back(pair.owner, rule(pair.pair));
    }
  }
}

/// Any of the leaves. Those that list their values are one tree, as if they were one enum.
NodeId Rules::branches(const std::vector<Schemas>& leaves) {
  // Each is a place of its own, and each step costs all that are still possible.
  constexpr std::ptrdiff_t kMostBranches = 256;
  const auto lists = [](const Schemas& own) {
    return std::ranges::any_of(own, [](const Value* schema) {
      return schema->find("const") != nullptr || schema->find("enum") != nullptr;
    });
  };
  const std::ptrdiff_t listing = std::ranges::count_if(leaves, lists);
  if (std::ssize(leaves) - listing > kMostBranches) {
    throw_error(ErrorCode::kLimitExceeded, "its anyOf come to more than ", kMostBranches,
                " combinations without enum or const, which is the limit");
  }
  std::vector<NodeId> choices;
  Texts texts;
  for (const Schemas& own : leaves) {
    if (listing > 1 && lists(own)) {
      add_texts(own, *listed(own), &texts);
    } else {
      choices.push_back(leaf(own));
    }
  }
  if (listing > 1) choices.push_back(program_.match(e_.any_of(std::move(texts)), end_));
  e_.pay(&budget_);
  return program_.split(choices);
}

void Rules::check_exclusive() {
  for (const auto& [schema, both] : exclusive_) {
    if (program_.node(both).productive) {
      text_.unsupported(*schema, "oneOf",
                        "has branches that a value can meet both: write anyOf, or let a property "
                        "with a const tell them apart");
    }
  }
}

NodeId Rules::leaf(const Schemas& schemas) {
  const auto [found, is_new] = leaf_rules_.try_emplace(schemas, 0);
  if (!is_new) return found->second;
  std::vector<NodeId> choices;
  if (const auto values = listed(schemas)) {
    Texts texts;
    add_texts(schemas, *values, &texts);
    choices.push_back(program_.match(e_.any_of(std::move(texts)), end_));
  } else {
    const unsigned kinds = this->kinds(schemas);
    choices.push_back(program_.match(scalars(schemas, kinds), end_));
    if ((kinds & kArray) != 0) choices.push_back(array(schemas));
    if ((kinds & kObject) != 0) choices.push_back(object(schemas));
  }
  e_.pay(&budget_);
  return leaf_rules_[schemas] = program_.split(choices);
}

/// What kinds of values a leaf leaves.
unsigned Rules::kinds(const Schemas& leaf) {
  constexpr size_t kMembersPerStep = 4;  // each is looked at for many a keyword
  unsigned out = kAll;
  for (const Value* const schema : leaf) {
    budget_.step(1 + schema->object()->size() / kMembersPerStep);
    out &= kinds_of(text_, *schema);
  }
  return out;
}

bool Rules::allows_strings(const Schemas& leaf) const {
  return std::ranges::all_of(
      leaf, [&](const Value* schema) { return (kinds_of(text_, *schema) & kString) != 0; });
}

Expr Rules::scalars(const Schemas& leaf, unsigned kinds) {
  std::vector<Expr> parts;
  if ((kinds & kNull) != 0) parts.push_back(e_.literal("null"));
  if ((kinds & kBool) != 0) parts.push_back(e_.literals({"true", "false"}));
  if ((kinds & kWhole) != 0) {
    parts.push_back(number_expression(text_, leaf, (kinds & kBroken) == 0, &e_));
  }
  if ((kinds & kString) != 0) {
    parts.push_back(e_.concat({e_.byte('"'), strings_.of(leaf), e_.byte('"')}));
  }
  return e_.choice(std::move(parts));
}

/// plain_text, which is as long as the schema likes.
std::string Rules::text_of(const Value& value) const {
  constexpr size_t kBytesPerStep = 8;
  std::string out = plain_text(value);
  budget_.step(1 + out.size() / kBytesPerStep);
  return out;
}

/// What enum and const leave; nothing if there are none.
std::optional<std::vector<const Value*>> Rules::listed(const Schemas& leaf) const {
  std::optional<std::vector<const Value*>> out;
  const auto keep = [&](const std::vector<const Value*>& own) {
    if (!out) {
      out = own;
      return;
    }
    std::vector<std::string> texts;
    for (const Value* const value : own) texts.push_back(text_of(*value));
    std::ranges::sort(texts);
    std::erase_if(*out, [&](const Value* value) {
      return !std::ranges::binary_search(texts, text_of(*value));
    });
  };
  for (const Value* const schema : leaf) {
    if (const Value* const only = schema->find("const")) keep({only});
    if (const Value::List* const list = text_.list(*schema, "enum")) {
      std::vector<const Value*> own;
      for (const Value& value : *list) own.push_back(&value);
      keep(own);
    }
  }
  return out;
}

/// The texts of the values that meet a leaf.
void Rules::add_texts(const Schemas& leaf, const std::vector<const Value*>& values, Texts* out) {
  const unsigned kinds = this->kinds(leaf);
  std::map<unsigned, Expr> rules;  // what the leaf says of a kind beside its enum and const
  for (const Value* const value : values) {
    budget_.step();
    e_.pay(&budget_);
    const unsigned kind = kind_of(*value);
    if ((kind & kinds) == 0) continue;
    if ((kind & (kArray | kObject)) != 0) {
      check_plain(leaf);
      spell(*value, &out->emplace_back());
      continue;
    }
    const auto [found, is_new] = rules.try_emplace(kind, kNothing);
    if (is_new) found->second = scalars(leaf, kind == kBroken ? kWhole | kBroken : kind);
    const std::string text = text_of(*value);
    if (e_.matches(found->second, text, &budget_)) spell_text(text, &out->emplace_back());
  }
}

void Rules::check_plain(const Schemas& leaf) const {
  for (const Value* const schema : leaf) {
    if (says_of_parts(*schema)) {
      text_.unsupported(*schema, "an enum or const of lists or objects",
                        "can't stand beside this schema");
    }
  }
}

void Rules::spell_text(std::string_view text, std::vector<Expr>* out) {
  for (const char c : text) out->push_back(e_.byte(static_cast<uint8_t>(c)));
}

/// A value with the white space that may stand between its parts.
void Rules::spell(const Value& value, std::vector<Expr>* out) {
  const Value::List* const list = value.list();
  const Value::Object* const object = value.object();
  if (list == nullptr && object == nullptr) return spell_text(plain_text(value), out);
  const auto between = [&](bool first) {
    if (!first) out->insert(out->end(), {marks_.space, marks_.comma});
    out->push_back(marks_.space);
  };
  out->push_back(e_.byte(list != nullptr ? '[' : '{'));
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    between(i == 0);
    spell((*list)[i], out);
  }
  for (size_t i = 0; object != nullptr && i < object->size(); ++i) {
    between(i == 0);
    spell_text('"' + quoted_text((*object)[i].first) + '"', out);
    out->push_back(colon_);
    spell((*object)[i].second, out);
  }
  out->insert(out->end(), {marks_.space, e_.byte(list != nullptr ? ']' : '}')});
}

SchemaProgram compile_schema(std::string_view text, const GrammarLimits& limits) {
  const SchemaText schema(text, limits.max_schema_bytes);
  Budget budget(limits.compile_fuel, limits.max_token_items);
  Expressions expressions({.max_states = limits.max_lexer_states});
  Chars chars(&expressions);
  Rules rules(schema, limits.max_grammar_size, &expressions, &chars, &budget);
  NodeId start = 0;
  Program program = rules.make(&start);
  return {std::move(program), std::move(expressions), start};
}

}  // namespace headrace::grammar
