#pragma once

// Attributes and items of values, as jinja2's sandbox gives them.

#include <string_view>

#include "text/template/values/run.h"
#include "text/template/values/value.h"

namespace headrace::text::jinja {

Value undefined_named(Run& run, std::string_view name);
/// What `of` doesn't have.
Value undefined_member(Run& run, const Value& of, const Value& name);
Value undefined_hint(Run& run, std::string_view hint);
/// of.name: an attribute or method, else a key.
Value get_attribute(Run& run, const Value& of, std::string_view name);
/// of[item]: a key or place, else an attribute or method.
Value get_item(Run& run, const Value& of, const Value& item);
Value get_slice(Run& run, const Value& of, const Value& start, const Value& stop,
                const Value& step);

/// The places that a slice of `length` items takes: `count` of them, from `start` on by `step`.
struct SlicePlaces {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  int64_t count = 0;
};
SlicePlaces slice_places(int64_t length, const Value& start, const Value& stop, const Value& step);

}  // namespace headrace::text::jinja
