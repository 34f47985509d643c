#include "base/check.h"

#include <cstring>

namespace headrace {

void check_failed(const char* expression, const char* file, int line, const std::string& detail) {
  const char* slash = std::strrchr(file, '/');
  throw InternalError(str_cat("internal error: ", expression, " does not hold at ",
                              slash ? slash + 1 : file, ":", line, detail.empty() ? "" : ": ",
                              detail, ". Please report this."));
}

}  // namespace headrace
