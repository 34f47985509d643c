#include "grammar/schema/leaves.h"

#include <algorithm>

#include "grammar/schema/keywords.h"

namespace headrace::grammar {

namespace {

constexpr size_t kMostLeaves = 2000;
constexpr size_t kMostOneOf = 64;
constexpr int kMostChoices = 100;

template <class List, class Item>
bool holds(const List& list, const Item& item) {
  return std::ranges::find(list, item) != list.end();
}

}  // namespace

std::vector<Schemas> Leaves::of(const Schemas& schemas) {
  steps_.clear();
  Way way;
  for (size_t i = schemas.size(); i-- > 0;) {
    way.waiting.push_back(steps_.size());
    steps_.push_back({schemas[i], kNowhere});
  }
  std::vector<Schemas> out;
  expand(std::move(way), 0, &out);
  return out;
}

void Leaves::expand(Way way, int depth, std::vector<Schemas>* out) {
  if (depth > kMostChoices) {
    throw_error(ErrorCode::kLimitExceeded, "it has more than ", kMostChoices,
                " anyOf that hold at once, which is the limit");
  }
  while (!way.waiting.empty()) {
    const size_t step = way.waiting.back();
    way.waiting.pop_back();
    if (!look_at(step, &way)) return;
  }
  if (way.choices.empty()) {
    budget_.step(out->size() + 1);
    if (!holds(*out, way.leaf)) out->push_back(std::move(way.leaf));
    if (out->size() > kMostLeaves) {
      throw_error(ErrorCode::kLimitExceeded, "its anyOf come to more than ", kMostLeaves,
                  " combinations, which is the limit");
    }
    return;
  }
  const std::shared_ptr<const std::vector<size_t>> choice = std::move(way.choices.back());
  way.choices.pop_back();
  for (const size_t branch : *choice) {
    Way next = way;
    next.waiting = {branch};
    expand(std::move(next), depth + 1, out);
  }
}

bool Leaves::look_at(size_t step, Way* way) {
  const Value& schema = *steps_[step].schema;
  budget_.step(way->seen.size() + 1);
  if (schema.boolean() != nullptr) return *schema.boolean();
  if (holds(way->seen, &schema)) return true;
  way->seen.push_back(&schema);
  if (schema.object() == nullptr) text_.wrong(schema, "the schema", "must be an object or a bool");
  if (checked_.insert(&schema).second) check_keywords(text_, schema);
  if (has_own_keywords(schema)) way->leaf.push_back(&schema);
  std::vector<size_t> more = listed("allOf", step);
  if (const std::string* const reference = text_.string(schema, "$ref")) {
    more.push_back(add(schema, "$ref", target(schema, *reference), step));
  }
  way->waiting.insert(way->waiting.end(), more.rbegin(), more.rend());
  for (const char* keyword : {"oneOf", "anyOf"}) {
    if (schema.find(keyword) == nullptr) continue;
    way->choices.push_back(std::make_shared<const std::vector<size_t>>(listed(keyword, step)));
    if (keyword == std::string_view("oneOf") && !coerce_one_of_) note_exclusive(schema);
  }
  return true;
}

/// Looked up once: a schema may be on many ways.
const Value& Leaves::target(const Value& schema, const std::string& reference) {
  if (const auto known = targets_.find(&schema); known != targets_.end()) return *known->second;
  const Value& found = text_.target(schema, reference);
  targets_.emplace(&schema, &found);
  return found;
}

size_t Leaves::add(const Value& owner, std::string_view keyword, const Value& schema, size_t from) {
  for (size_t at = from; at != kNowhere; at = steps_[at].from) {
    budget_.step();
    if (steps_[at].schema == &schema) text_.wrong(owner, keyword, "leads back to the same schema");
  }
  steps_.push_back({&schema, from});
  return steps_.size() - 1;
}

std::vector<size_t> Leaves::listed(std::string_view keyword, size_t from) {
  const Value& schema = *steps_[from].schema;
  const Value::List* const list = text_.list(schema, keyword);
  std::vector<size_t> out;
  if (list == nullptr) return out;
  if (list->empty()) text_.wrong(schema, keyword, "is empty");
  for (const Value& part : *list) out.push_back(add(schema, keyword, part, from));
  return out;
}

void Leaves::note_exclusive(const Value& schema) {
  if (!noted_.insert(&schema).second) return;
  const Value::List& list = *text_.list(schema, "oneOf");
  if (list.size() > kMostOneOf) {
    text_.unsupported(schema, "oneOf", "has more than 64 branches: write anyOf");
  }
  for (size_t i = 0; i < list.size(); ++i) {
    for (size_t j = i + 1; j < list.size(); ++j) {
      exclusive_.push_back({&schema, {&list[i], &list[j]}});
    }
  }
}

}  // namespace headrace::grammar
