#include "base/log.h"

#include <utility>

#include "base/env.h"

namespace headrace {

Logger::Logger(LogSink sink, std::optional<LogLevel> lowest)
    : sink_(std::move(sink)), lowest_(lowest) {}

void Logger::write(LogLevel level, const std::string& message) noexcept {
  try {
    const MutexLock lock(mutex_);
    sink_(level, message);
  } catch (...) {  // a sink's trouble is not the engine's
  }
}

std::optional<LogLevel> log_level_from_env() {
  const std::string text = env_log_level().value_or("warning");
  if (text == "off") return std::nullopt;
  for (LogLevel level : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    if (text == log_level_name(level)) return level;
  }
  throw_error(ErrorCode::kInvalidArgument, "HEADRACE_LOG_LEVEL is '", text,
              "': set it to debug, info, warning, error or off, or unset it.");
}

const char* v0::log_level_name(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "unknown";
}

}  // namespace headrace
