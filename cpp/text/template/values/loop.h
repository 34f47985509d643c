#pragma once

// The variable `loop`: where a loop is, and what comes next in it.

#include <cstdint>
#include <optional>

#include "text/template/values/compare.h"

namespace headrace::text::jinja {

/// Which items a loop takes: its `if`.
struct LoopFilter {
  bool (*takes)(void* context, const Value& item) = nullptr;
  void* context = nullptr;
};

struct Loop {
  Loop(Run& run, const Value& value, LoopFilter with)
      : over(value), cursor(run, value), filter(with) {}

  /// Moves to the next item; false behind the last.
  bool advance(Run& run);
  /// The item after this one; missing if there is none.
  Value peek(Run& run);
  int64_t length(Run& run);

  Value over;
  Cursor cursor;
  LoopFilter filter;
  int64_t index0 = -1;
  Value before;
  Value current;
  Value after;  ///< read already; missing if not
  std::optional<int64_t> known_length;
  Value changed;                   ///< what loop.changed() got last
  const void* recurses = nullptr;  ///< what loop(...) renders: the evaluator knows
  int64_t depth0 = 0;

 private:
  Value read(Run& run);
};

}  // namespace headrace::text::jinja
