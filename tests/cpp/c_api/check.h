#pragma once

/* CHECK for plain C tests: says where and stops. */

#include <stdio.h>
#include <stdlib.h>

#include "headrace/c.h"

#define CHECK(condition)                                                              \
  do {                                                                                \
    if (!(condition)) {                                                               \
      fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition, \
              headrace_last_error_message());                                         \
      exit(1);                                                                        \
    }                                                                                 \
  } while (0)

#define CHECK_OK(call) CHECK((call) == HEADRACE_OK)
