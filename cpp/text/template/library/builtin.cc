#include "text/template/library/builtin.h"

#include <algorithm>

#include "text/template/library/tables.h"
#include "text/template/values/fault.h"

namespace headrace::text::jinja {
namespace {

constexpr size_t kMostParameters = 6;

size_t split_names(std::string_view names, std::string_view (&into)[kMostParameters]) {
  size_t count = 0;
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    into[count++] = names.substr(0, end);
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return count;
}

template <size_t kCount>
const Builtin* find_in(const Table (&tables)[kCount], std::string_view name) {
  for (const Table& table : tables) {
    for (const Builtin& builtin : table) {
      if (builtin.name == name) {
        return &builtin;
      }
    }
  }
  return nullptr;
}

[[gnu::noinline]] Value call_matched(Run& run, const Builtin& builtin, const Value& self,
                                     const Given& given) {
  std::string_view names[kMostParameters];
  const size_t count = split_names(builtin.parameters, names);
  if (given.count > count) {
    fail({"TypeError: ", builtin.name, "() takes at most ", std::to_string(count),
          " arguments more (", std::to_string(given.count), " given)"});
  }
  Value* const values = run.arena.array<Value>(count);
  std::copy(given.positional, given.positional + given.count, values);
  for (uint32_t i = 0; i < given.named_count; ++i) {
    const size_t at = static_cast<size_t>(
        std::find(names + builtin.unnamed, names + std::max<size_t>(count, builtin.unnamed),
                  given.named[i].name) -
        names);
    if (at >= count) {
      fail({"TypeError: ", builtin.name, "() got an unexpected keyword argument '",
            given.named[i].name, "'"});
    }
    if (!values[at].is_missing()) {
      fail({"TypeError: ", builtin.name, "() got multiple values for argument '", names[at], "'"});
    }
    values[at] = given.named[i].value;
  }
  for (size_t i = 0; i < builtin.required; ++i) {
    if (values[i].is_missing()) {
      fail({"TypeError: ", builtin.name, "() missing 1 required positional argument: '", names[i],
            "'"});
    }
  }
  return builtin.function(run, self, {values, static_cast<uint32_t>(count), nullptr, 0});
}

}  // namespace

const Builtin* find_filter(std::string_view name) {
  static const Table kTables[] = {text_filters(), list_filters(), choosing_filters(),
                                  number_filters()};
  return find_in(kTables, name);
}

const Builtin* find_test(std::string_view name) {
  static const Table kTables[] = {tests()};
  return find_in(kTables, name);
}

const Builtin* find_global(std::string_view name) {
  static const Table kTables[] = {globals()};
  return find_in(kTables, name);
}

bool is_left_out_filter(std::string_view name) {
  for (const std::string_view left_out : {"filesizeformat", "pprint", "random", "striptags",
                                          "urlencode", "urlize", "wordwrap", "xmlattr"}) {
    if (name == left_out) {
      return true;
    }
  }
  return false;
}

Value call_builtin(Run& run, const Builtin& builtin, Value self, const Given& given) {
  run.spend(1);
  if (builtin.parameters == "*") {
    return builtin.function(run, self, given);
  }
  return call_matched(run, builtin, self, given);
}

}  // namespace headrace::text::jinja
