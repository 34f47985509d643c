#pragma once

// Filters, tests, global functions and methods: all are functions of values.

#include <cstdint>
#include <span>
#include <string_view>

#include "text/template/values/run.h"
#include "text/template/values/value.h"

namespace headrace::text::jinja {

struct NamedValue {
  std::string_view name;
  Value value;
};

struct Given {
  const Value* positional = nullptr;
  uint32_t count = 0;
  const NamedValue* named = nullptr;
  uint32_t named_count = 0;
};

/// `self`: what the filter or test is of, or whose method it is. `given`: one value for each name
/// in `parameters`, missing where none was given; all that was given, if `parameters` is "*".
using Function = Value (*)(Run& run, Value self, const Given& given);

struct Builtin {
  std::string_view name;
  Function function;
  std::string_view parameters = {};  ///< names with spaces between; "*": it reads them itself
  uint8_t required = 0;              ///< how many of them must be given
  uint8_t unnamed = 0;               ///< how many of them can't be given by name
};

const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
/// range, dict, namespace, raise_exception, strftime_now.
const Builtin* find_global(std::string_view name);
/// A filter of jinja2 that we leave out.
bool is_left_out_filter(std::string_view name);

/// Calls it with the arguments matched to its parameters. Throws Fault for those that don't fit.
Value call_builtin(Run& run, const Builtin& builtin, Value self, const Given& given);

using Table = std::span<const Builtin>;

}  // namespace headrace::text::jinja
