#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "headrace/chat_template.h"
#include "headrace/status.h"

namespace headrace::text {

/// The text, or "error: " and what went wrong.
inline std::string rendered(std::string_view source, std::string_view variables = "{}") {
  try {
    return ChatTemplate(source).render(variables);
  } catch (const Error& error) {
    return std::string("error: ") + error.what();
  }
}

/// What {{ expression }} prints.
inline std::string value_of(const std::string& expression, std::string_view variables = "{}") {
  return rendered("{{ " + expression + " }}", variables);
}

inline bool fails(const std::string& expression, std::string_view variables = "{}") {
  return value_of(expression, variables).starts_with("error: ");
}

}  // namespace headrace::text
