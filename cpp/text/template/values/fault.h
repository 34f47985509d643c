#pragma once

// What goes wrong within a template. It becomes an Error, with the line, where the call ends.

#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>

#include "headrace/status.h"

namespace headrace::text::jinja {

struct Fault : std::exception {
  Fault(ErrorCode with, std::string says) : code(with), message(std::move(says)) {}
  const char* what() const noexcept override { return message.c_str(); }

  ErrorCode code;
  std::string message;
  uint32_t line = 0;        ///< 0: where the template was at
  bool as_written = false;  ///< raise_exception: the message is the template's own
};

using Parts = std::initializer_list<std::string_view>;

/// The template, or what it was given, is at fault.
[[noreturn]] void fail(Parts message);
/// As above, at a line.
[[noreturn]] void fail_at(uint32_t line, Parts message);
[[noreturn]] void fail_limit(Parts message);
/// jinja2 may do it; we don't. line: 0 for where the template is at.
[[noreturn]] void fail_unsupported(uint32_t line, Parts message);
/// As above: Python's integers have no largest one.
[[noreturn]] void fail_big_integer();

}  // namespace headrace::text::jinja
