#include "grammar/schema/keywords.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace headrace::grammar {

namespace {

using std::string_view;

constexpr std::array<string_view, 13> kOfParts = {
    "properties", "required",      "additionalProperties", "patternProperties", "propertyNames",
    "items",      "minProperties", "maxProperties",        "prefixItems",       "additionalItems",
    "minItems",   "maxItems",      "uniqueItems"};
constexpr std::array<string_view, 13> kOfScalars = {
    "type",   "enum",    "const",   "nullable",         "minLength",        "maxLength", "pattern",
    "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
constexpr std::array<string_view, 4> kOfOthers = {"allOf", "anyOf", "oneOf", "$ref"};
constexpr std::array<string_view, 23> kNotes = {
    "title",       "description",  "$comment",      "default",         "examples",
    "example",     "deprecated",   "readOnly",      "writeOnly",       "$schema",
    "$id",         "id",           "$anchor",       "contentEncoding", "contentMediaType",
    "xml",         "$defs",        "definitions",   "contentSchema",   "discriminator",
    "$vocabulary", "externalDocs", "$dynamicAnchor"};

template <class List>
bool has(const List& list, string_view name) {
  return std::ranges::find(list, name) != list.end();
}

bool is_note(string_view name) { return has(kNotes, name) || name.starts_with("x-"); }

bool is(const Value* value, bool wanted) {
  return value != nullptr && value->boolean() != nullptr && *value->boolean() == wanted;
}

bool all_free(const Value& value) {
  const Value::Object* const members = value.object();
  return members != nullptr && std::ranges::all_of(*members, [](const Value::Member& member) {
           const Value::List* const list = member.second.list();
           return list != nullptr ? list->empty() : is_free(member.second);
         });
}

bool branches_are_free(const Value& schema) {
  return std::ranges::all_of(std::array<string_view, 2>{"then", "else"}, [&](string_view name) {
    const Value* const branch = schema.find(name);
    return branch == nullptr || is_free(*branch);
  });
}

/// A keyword that generators write although it asks for nothing.
bool is_idle(const Value& schema, string_view name, const Value& value) {
  if (name == "uniqueItems" || name == "not") return is(&value, false);
  if (name == "unevaluatedItems" || name == "unevaluatedProperties") return is_free(value);
  if (name == "dependentRequired" || name == "dependentSchemas" || name == "dependencies") {
    return all_free(value);
  }
  if (name == "if") return branches_are_free(schema);
  if (name == "then" || name == "else")
    return schema.find("if") == nullptr || branches_are_free(schema);
  const Value* const least = schema.find("minContains");
  const bool asks_for_none = least != nullptr && least->integer() != nullptr &&
                             *least->integer() == 0 && schema.find("maxContains") == nullptr;
  if (name == "contains") return asks_for_none;
  return (name == "minContains" || name == "maxContains") &&
         (schema.find("contains") == nullptr || asks_for_none);
}

}  // namespace

bool is_free(const Value& schema) {
  if (schema.object() == nullptr) return is(&schema, true);
  return std::ranges::all_of(*schema.object(),
                             [](const Value::Member& member) { return is_note(member.first); });
}

bool has_own_keywords(const Value& schema) {
  return std::ranges::any_of(*schema.object(), [](const Value::Member& member) {
    return has(kOfParts, member.first) || has(kOfScalars, member.first);
  });
}

bool says_of_parts(const Value& schema) {
  return std::ranges::any_of(
      *schema.object(), [](const Value::Member& member) { return has(kOfParts, member.first); });
}

void check_keywords(const SchemaText& text, const Value& schema) {
  for (const auto& [name, value] : *schema.object()) {
    if (is_idle(schema, name, value) || is_note(name)) continue;
    if (name == "uniqueItems") text.unsupported(schema, name);
    if (!has(kOfParts, name) && !has(kOfScalars, name) && !has(kOfOthers, name)) {
      text.unsupported(
          schema, name,
          "isn't supported: take it out, or let its name begin with x- if it is a note");
    }
  }
}

}  // namespace headrace::grammar
