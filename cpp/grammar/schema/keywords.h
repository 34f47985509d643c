#pragma once

#include "grammar/schema/schema_text.h"

namespace headrace::grammar {

/// Throws Error(kUnsupported) that names the first keyword of a schema (an object) that would have
/// to be obeyed, and can't be, or isn't known.
void check_keywords(const SchemaText& text, const Value& schema);

/// Does a schema say anything itself, beside what it makes of others (allOf, $ref ...)?
bool has_own_keywords(const Value& schema);

/// Keywords about objects or arrays.
bool says_of_parts(const Value& schema);

/// Does it allow everything?
bool is_free(const Value& schema);

}  // namespace headrace::grammar
