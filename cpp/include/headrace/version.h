#pragma once

namespace headrace {

/// "MAJOR.MINOR.PATCH".
const char* version() noexcept;

}  // namespace headrace
