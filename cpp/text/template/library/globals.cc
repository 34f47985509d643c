#include <locale.h>
#include <ctime>

#include "text/template/library/arguments.h"
#include "text/template/library/tables.h"
#include "text/template/values/dict.h"
#include "text/unicode/utf8.h"

namespace headrace::text::jinja {
namespace {

Value make_range(Run& run, Value, const Given& given) {
  Range range;
  if (given.named_count > 0 || given.count < 1 || given.count > 3) {
    fail({"TypeError: range takes one to three numbers"});
  }
  range.start = given.count == 1 ? 0 : int_argument(given.positional[0], 0);
  range.stop = int_argument(given.positional[given.count == 1 ? 0 : 1], 0);
  range.step = given.count == 3 ? int_argument(given.positional[2], 1) : 1;
  if (range.step == 0) {
    fail({"ValueError: range() arg 3 must not be zero"});
  }
  const bool up = range.step > 0;
  if (up ? range.start < range.stop : range.start > range.stop) {
    const uint64_t low = static_cast<uint64_t>(up ? range.start : range.stop);
    const uint64_t high = static_cast<uint64_t>(up ? range.stop : range.start);
    const uint64_t step =
        up ? static_cast<uint64_t>(range.step) : uint64_t{0} - static_cast<uint64_t>(range.step);
    const uint64_t count = (high - low - 1) / step + 1;
    if (count > 100000) {
      fail(
          {"OverflowError: Range too big. The sandbox blocks ranges larger than MAX_RANGE "
           "(100000)."});
    }
    range.count = static_cast<uint32_t>(count);
  }
  Value value;
  value.kind = Kind::kRange;
  value.range = run.arena.make<Range>(range);
  return value;
}

/// What dict() and namespace() do with what they are given.
Dict* dict_of(Run& run, const Given& given) {
  if (given.count > 1) {
    fail({"TypeError: dict expected at most 1 argument, got ", std::to_string(given.count)});
  }
  Dict* const dict = new_dict(run, given.named_count);
  if (given.count == 1 && given.positional[0].kind == Kind::kDict) {
    const Dict* const other = given.positional[0].dict;
    for (uint32_t i = 0; i < other->count; ++i) {
      run.spend(1);
      dict_set(run, dict, other->entries[i].key, other->entries[i].value);
    }
  } else if (given.count == 1) {
    if (given.positional[0].is_undefined()) {
      fail_undefined(run, given.positional[0]);
    }
    Cursor cursor(run, given.positional[0]);
    Value item;
    while (cursor.next(run, &item)) {
      const Items pair = all_items(run, item);
      if (pair.count != 2) {
        fail({"ValueError: dictionary update sequence element has length ",
              std::to_string(pair.count), "; 2 is required"});
      }
      dict_set(run, dict, pair.items[0], pair.items[1]);
    }
  }
  for (uint32_t i = 0; i < given.named_count; ++i) {
    dict_set(run, dict, Value::of(given.named[i].name), given.named[i].value);
  }
  return dict;
}

Value make_dict(Run& run, Value, const Given& given) { return Value::of(dict_of(run, given)); }

Value make_namespace(Run& run, Value, const Given& given) {
  Value value;
  value.kind = Kind::kNamespace;
  value.names = dict_of(run, given);
  return value;
}

Value raise_exception(Run& run, Value, const Given& given) {
  constexpr size_t kLongest = 1000;
  Fault fault(ErrorCode::kInvalidArgument,
              shortened(str_of(run, given.positional[0]).text(), kLongest));
  fault.as_written = true;
  throw fault;
}

/// The format without what a time without a zone leaves empty, and with microseconds filled in.
std::string time_format(std::string_view format, int64_t microseconds) {
  std::string result;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      result += format[i];
      continue;
    }
    const char kind = format[++i];
    if (kind == 'f') {
      const std::string digits = std::to_string(1000000 + microseconds);
      result += digits.substr(1);
    } else if (kind != 'z' && kind != 'Z') {
      result += '%';
      result += kind;
    }
  }
  return result;
}

Value strftime_now(Run& run, Value, const Given& given) {
  using std::chrono::system_clock;
  constexpr size_t kLongest = 1 << 12;
  const std::string_view wanted = text_argument(given.positional[0], "a format of time");
  if (wanted.size() > kLongest) {
    fail_limit({"a format of time has more than the ", std::to_string(kLongest), " bytes allowed"});
  }
  if (wanted.find('\0') != std::string_view::npos) {
    fail({"ValueError: embedded null character in a format of time"});
  }
  const bool own = run.clock != nullptr && *run.clock;
  const system_clock::time_point now = own ? (*run.clock)() : system_clock::now();
  const std::time_t seconds = system_clock::to_time_t(now);
  const int64_t microseconds = std::chrono::duration_cast<std::chrono::microseconds>(
                                   now - system_clock::from_time_t(seconds))
                                   .count();
  std::tm parts{};
  localtime_r(&seconds, &parts);
  // Names of days and months in English, whatever the program's locale is.
  static const locale_t kPlain = newlocale(LC_ALL_MASK, "C", nullptr);
  const std::string format = time_format(wanted, microseconds) + " ";  // so that it isn't empty
  std::string text(4 * kLongest, '\0');
  const size_t size = strftime_l(text.data(), text.size(), format.c_str(), &parts, kPlain);
  if (size == 0) {
    fail_limit({"a time has more than the ", std::to_string(text.size()), " bytes allowed"});
  }
  return run.copied(std::string_view(text).substr(0, size - 1));
}

}  // namespace

Table globals() {
  static constexpr Builtin kGlobals[] = {
      {"dict", make_dict, "*"},
      {"namespace", make_namespace, "*"},
      {"raise_exception", raise_exception, "message", 1},
      {"range", make_range, "*"},
      {"strftime_now", strftime_now, "format", 1},
  };
  return kGlobals;
}

}  // namespace headrace::text::jinja
