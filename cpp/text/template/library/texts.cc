#include "text/template/library/texts.h"

#include <algorithm>

#include "text/template/library/arguments.h"
#include "text/template/library/tables.h"
#include "text/template/values/chars.h"

namespace headrace::text::jinja {
namespace {

bool has_char(std::string_view chars, std::string_view one) {
  for (size_t at = 0; at < chars.size(); at += utf8_size(chars[at])) {
    if (chars.substr(at, one.size()) == one) {
      return true;
    }
  }
  return false;
}

bool ends_line(char32_t c) noexcept {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

Value stripped(Run& run, const Value& text, const Value& chars, int sides) {
  std::string_view rest = text.text();
  run.spend_bytes(rest.size());
  if (!is_given(chars)) {
    rest = (sides & 1) != 0 ? strip_space_left(rest) : rest;
    rest = (sides & 2) != 0 ? strip_space_right(rest) : rest;
    return Value::of(rest, text.tag);
  }
  if (!chars.is_string()) {
    fail({"TypeError: strip arg must be None or str"});
  }
  const std::string_view set = chars.text();
  while ((sides & 1) != 0 && !rest.empty()) {
    run.spend_bytes(set.size());
    const size_t size = utf8_size(rest[0]);
    if (!has_char(set, rest.substr(0, size))) {
      break;
    }
    rest.remove_prefix(size);
  }
  while ((sides & 2) != 0 && !rest.empty()) {
    run.spend_bytes(set.size());
    const size_t start = char_before(rest, rest.size());
    if (!has_char(set, rest.substr(start))) {
      break;
    }
    rest = rest.substr(0, start);
  }
  return Value::of(rest, text.tag);
}

Value replaced(Run& run, std::string_view text, std::string_view old, std::string_view by,
               int64_t count) {
  run.spend_bytes(text.size());
  Builder out(run);
  size_t at = 0;
  for (uint64_t left = count < 0 ? UINT64_MAX : static_cast<uint64_t>(count); left > 0; --left) {
    run.spend_bytes(by.size());
    if (old.empty()) {
      // Between all characters, and at both ends.
      out.append(by);
      if (at == text.size()) {
        return out.value();
      }
      const size_t size = utf8_size(text[at]);
      out.append(text.substr(at, size));
      at += size;
      continue;
    }
    const size_t found = find_text(run, text, old, at);
    if (found == std::string_view::npos) {
      break;
    }
    out.append(text.substr(at, found - at));
    out.append(by);
    at = found + old.size();
  }
  if (at == 0) {
    return Value::of(text);
  }
  out.append(text.substr(at));
  return out.value();
}

Value split_lines(Run& run, const Value& text, bool keep_ends) {
  const std::string_view all = text.text();
  run.spend_bytes(all.size());
  ListBuilder lines(run);
  size_t start = 0;
  for (size_t at = 0; at < all.size();) {
    const size_t end = at;
    const char32_t c = next_char(all, &at);
    if (!ends_line(c)) {
      continue;
    }
    at += c == '\r' && at < all.size() && all[at] == '\n';
    run.spend(1);
    lines.add(Value::of(all.substr(start, (keep_ends ? at : end) - start), text.tag));
    start = at;
  }
  if (start < all.size()) {
    lines.add(Value::of(all.substr(start), text.tag));
  }
  return lines.value();
}

Value padded(Run& run, const Value& text, int64_t width, std::string_view fill, int where) {
  run.spend_bytes(text.size);
  const int64_t length = static_cast<int64_t>(char_count(text.text()));
  if (width <= length) {
    return text;
  }
  const uint64_t padding = static_cast<uint64_t>(width - length);
  uint64_t left = where == 1 ? 0 : padding;
  if (where == 0) {
    left = padding / 2 + (padding & static_cast<uint64_t>(width) & 1);
  }
  Builder out(run);
  out.append_times(fill, left);
  out.append(text.text());
  out.append_times(fill, padding - left);
  return out.value(text.tag);
}

Value joined(Run& run, std::string_view between, const Value& values, bool any, const Value& path) {
  Builder out(run);
  Cursor cursor(run, values);
  Value item;
  for (size_t number = 0; cursor.next(run, &item); ++number) {
    if (number > 0) {
      run.spend_bytes(between.size());
      out.append(between);
    }
    item = follow(run, item, path, Value());
    if (!any && !item.is_string()) {
      fail({"TypeError: sequence item ", std::to_string(number), ": expected str instance, ",
            type_name(item), " found"});
    }
    append_str(run, &out, item);
  }
  return out.value();
}

std::string_view before_last(Run& run, std::string_view text, std::string_view separator) {
  run.spend_bytes(text.size());
  const size_t at = text.rfind(separator);
  return at == std::string_view::npos ? text : text.substr(0, at);
}

}  // namespace headrace::text::jinja
