#pragma once

// Variables from outside, given value by value.

#include <cstddef>
#include <string_view>
#include <vector>

#include "text/template/values/compare.h"
#include "text/template/values/dict.h"
#include "text/template/values/run.h"

namespace headrace::text::jinja {

/// How deep lists and dicts of variables may be nested.
inline constexpr int kMostVariableLevels = 100;

/// Throws Error: the variables have more than so many bytes.
[[noreturn]] void fail_variables_size(size_t limit);

/// Makes the dict of all variables, where it begins. In a dict, keys and values alternate.
class VariablesBuilder {
 public:
  /// max_bytes: of texts, and one for each value.
  VariablesBuilder(Run& run, size_t max_bytes);

  /// Throws Fault; and Error, as the others do for what isn't allowed at this place.
  void add(const Value& value);
  /// Copies it.
  void add_text(std::string_view text, Kind kind = Kind::kString);
  /// kind: kList, kTuple or kDict.
  void begin(Kind kind);
  void end();
  /// The dict, once all that was begun has ended.
  Dict* finish();

 private:
  struct Level {
    Kind kind;
    ListBuilder items;
    Dict* dict;
    Value key;  ///< whose value comes next
  };

  void count(size_t bytes);
  void put(const Value& value);

  Run& run_;
  size_t max_bytes_;
  size_t bytes_ = 0;
  std::vector<Level> levels_;
};

}  // namespace headrace::text::jinja
