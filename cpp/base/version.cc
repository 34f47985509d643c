#include "headrace/version.h"

const char* headrace::version() noexcept { return HEADRACE_VERSION; }
