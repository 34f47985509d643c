#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "headrace/status.h"

namespace headrace {

/// `action` must throw an Error of this code whose message has each of `parts`.
template <class Action>
void expect_error(ErrorCode code, std::initializer_list<std::string> parts, Action action) {
  try {
    action();
    ADD_FAILURE() << "nothing was thrown; expected " << error_code_name(code);
  } catch (const Error& e) {
    const std::string message = e.what();
    EXPECT_EQ(error_code_name(e.code()), std::string(error_code_name(code))) << message;
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
    }
  }
}

}  // namespace headrace
