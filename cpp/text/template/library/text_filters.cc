#include "text/template/format/format.h"
#include "text/template/json_values/json.h"
#include "text/template/library/arguments.h"
#include "text/template/library/letters.h"
#include "text/template/library/tables.h"
#include "text/template/library/texts.h"
#include "text/template/run/operators.h"
#include "text/template/values/chars.h"
#include "text/template/values/dict.h"

namespace headrace::text::jinja {
namespace {

Value filter_capitalize(Run& run, Value self, const Given&) {
  return changed_text<python_capitalize>(run, soft_str(run, self));
}
Value filter_lower(Run& run, Value self, const Given&) {
  return lower_text(run, soft_str(run, self));
}
Value filter_upper(Run& run, Value self, const Given&) {
  return upper_text(run, soft_str(run, self));
}
Value filter_string(Run& run, Value self, const Given&) { return soft_str(run, self); }
Value filter_escape(Run& run, Value self, const Given&) { return escaped(run, self); }
Value filter_safe(Run& run, Value self, const Given&) {
  return Value::of(str_of(run, self).text(), kMarkup);
}
Value filter_forceescape(Run& run, Value self, const Given&) {
  return escaped(run, str_of(run, self));
}

Value filter_center(Run& run, Value self, const Given& given) {
  return padded(run, soft_str(run, self), int_argument(given.positional[0], 80), " ", 0);
}

Value filter_trim(Run& run, Value self, const Given& given) {
  return stripped(run, soft_str(run, self), given.positional[0], 3);
}

Value filter_join(Run& run, Value self, const Given& given) {
  const Value between =
      given.positional[0].is_missing() ? Value::of("") : str_of(run, given.positional[0]);
  return joined(run, between.text(), self, true, given.positional[1]);
}

Value filter_replace(Run& run, Value self, const Given& given) {
  const Value& count = given.positional[2];
  return replaced(run, str_of(run, self).text(), str_of(run, given.positional[0]).text(),
                  str_of(run, given.positional[1]).text(),
                  is_given(count) ? int_argument(count, -1) : -1);
}

bool begins_word(char32_t c) noexcept {
  return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c);
}

Value filter_title(Run& run, Value self, const Given&) {
  const std::string_view text = soft_str(run, self).text();
  Builder out(run);
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const bool separators = begins_word(next_char(text, &at));
    for (size_t next = at; at < text.size(); at = next) {
      if (begins_word(next_char(text, &next)) != separators) {
        break;
      }
    }
    const std::string_view part = text.substr(start, at - start);
    const size_t first = utf8_size(part[0]);
    out.append(upper_text(run, Value::of(part.substr(0, first))).text());
    out.append(lower_text(run, Value::of(part.substr(first))).text());
  }
  return out.value();
}

Value filter_wordcount(Run& run, Value self, const Given&) {
  const std::string_view text = soft_str(run, self).text();
  run.spend_bytes(text.size());
  int64_t count = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_char(text, &at);
    const bool word = c == '_' || python_is(c, kPyAlpha | kPyNumeric);
    count += word && !in_word;
    in_word = word;
  }
  return Value::of(count);
}

Value filter_indent(Run& run, Value self, const Given& given) {
  own_text(run, self);
  const Value& width = given.positional[0];
  Builder indention(run);
  if (width.is_string()) {
    indention.append(width.text());
  } else {
    const int64_t spaces = int_argument(width, 4);
    indention.append_times(" ", spaces > 0 ? static_cast<uint64_t>(spaces) : 0);
  }
  const bool first = flag_argument(run, given.positional[1]);
  const bool blank = flag_argument(run, given.positional[2]);
  // Of markup, what is put between is markup, too.
  const Value between = self.is_markup() && width.is_string() && !width.is_markup()
                            ? Value::of(indention.view(), kMarkup)
                            : indention.value();
  const Value ended =
      operate(run, Operation::kAdd, self, Value::of("\n", self.is_markup() ? kMarkup : kPlain));
  const Value lines = split_lines(run, ended, false);
  Builder out(run);
  for (uint32_t i = 0; i < lines.size; ++i) {
    const std::string_view line = lines.items[i].text();
    run.spend_bytes(line.size() + between.size);
    out.append(i > 0 ? "\n" : "");
    if (i == 0 ? first : blank || !line.empty()) {
      out.append(between.text());
    }
    out.append(line);
  }
  return out.value(self.tag);
}

Value filter_truncate(Run& run, Value self, const Given& given) {
  const int64_t length = int_argument(given.positional[0], 255);
  const bool kill_words = flag_argument(run, given.positional[1]);
  const Value end = given.positional[2].is_missing() ? Value::of("...") : given.positional[2];
  const int64_t leeway = is_given(given.positional[3]) ? int_argument(given.positional[3], 5) : 5;
  const std::string_view end_text = text_argument(end, "end");
  run.spend_bytes(end_text.size());
  const int64_t end_length = static_cast<int64_t>(char_count(end_text));
  if (length < end_length) {
    fail({"AssertionError: expected length >= ", std::to_string(end_length), ", got ",
          std::to_string(length)});
  }
  if (leeway < 0) {
    fail({"AssertionError: expected leeway >= 0, got ", std::to_string(leeway)});
  }
  const std::optional<int64_t> own = length_of(run, self);
  if (!own) {
    fail({"TypeError: object of type '", type_name(self), "' has no len()"});
  }
  if (*own <= length || *own - length <= leeway) {
    return self;
  }
  std::string_view text = own_text(run, self);
  text = text.substr(0, byte_of_char(text, static_cast<size_t>(length - end_length)));
  if (!kill_words) {
    text = before_last(run, text, " ");
  }
  return operate(run, Operation::kAdd, Value::of(text, self.tag), end);
}

Value filter_format(Run& run, Value self, const Given& given) {
  if (given.count > 0 && given.named_count > 0) {
    fail({"can't handle positional and keyword arguments at the same time"});
  }
  Value values = Value::sequence(Kind::kTuple, given.positional, given.count);
  if (given.named_count > 0) {
    Dict* const dict = new_dict(run, given.named_count);
    for (uint32_t i = 0; i < given.named_count; ++i) {
      dict_set(run, dict, Value::of(given.named[i].name), given.named[i].value);
    }
    values = Value::of(dict);
  }
  return format_percent(run, soft_str(run, self), values);
}

std::string_view separator(const Value& separators, uint32_t which) {
  if (!separators.is_sequence() || separators.size != 2) {
    fail({"ValueError: separators must be two strings"});
  }
  return text_argument(separators.items[which], "a separator");
}

Value filter_tojson(Run& run, Value self, const Given& given) {
  JsonForm form;
  form.ascii = flag_argument(run, given.positional[0]);
  form.sort_keys = flag_argument(run, given.positional[3]);
  const Value& indent = given.positional[1];
  if (is_given(indent)) {
    form.indented = true;
    form.between_items = ",";
    if (indent.is_string()) {
      form.indent = indent.text();
    } else {
      const int64_t spaces = int_argument(indent, 0);
      Builder builder(run);
      builder.append_times(" ", spaces > 0 ? static_cast<uint64_t>(spaces) : 0);
      form.indent = builder.view();
    }
  }
  if (is_given(given.positional[2])) {
    form.between_items = separator(given.positional[2], 0);
    form.behind_key = separator(given.positional[2], 1);
  }
  return to_json(run, self, form);
}

}  // namespace

Table text_filters() {
  static constexpr Builtin kFilters[] = {
      {"capitalize", filter_capitalize},
      {"center", filter_center, "width"},
      {"e", filter_escape},
      {"escape", filter_escape},
      {"forceescape", filter_forceescape},
      {"format", filter_format, "*"},
      {"indent", filter_indent, "width first blank"},
      {"join", filter_join, "d attribute"},
      {"lower", filter_lower},
      {"replace", filter_replace, "old new count", 2},
      {"safe", filter_safe},
      {"string", filter_string},
      {"title", filter_title},
      {"tojson", filter_tojson, "ensure_ascii indent separators sort_keys"},
      {"trim", filter_trim, "chars"},
      {"truncate", filter_truncate, "length killwords end leeway"},
      {"upper", filter_upper},
      {"wordcount", filter_wordcount},
  };
  return kFilters;
}

}  // namespace headrace::text::jinja
