#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "headrace/status.h"

namespace headrace::testing {

/// `action` must throw Error of that code, whose message mentions all the words.
template <class Action>
void expect_error(ErrorCode code, std::initializer_list<const char*> words, Action action) {
  try {
    action();
    ADD_FAILURE() << "did not throw " << error_code_name(code);
  } catch (const Error& e) {
    EXPECT_EQ(error_code_name(e.code()), std::string(error_code_name(code))) << e.what();
    for (const char* word : words) {
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
    }
  }
}

}  // namespace headrace::testing
