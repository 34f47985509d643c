#pragma once

#include <optional>
#include <string>

#include "base/check.h"
#include "base/mutex.h"
#include "headrace/options.h"

namespace headrace {

/// Hands messages to a sink, one call at a time, from any thread. Without a sink, or below the
/// lowest level, a message is dropped before it is formatted. What a sink throws is dropped.
class Logger {
 public:
  /// Drops everything.
  Logger() = default;
  /// `lowest` nullopt: off.
  Logger(LogSink sink, std::optional<LogLevel> lowest);
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  bool enabled(LogLevel level) const noexcept { return sink_ && lowest_ && level >= *lowest_; }

  /// Concatenates `parts` with operator<<.
  template <class... Parts>
  void log(LogLevel level, const Parts&... parts) {
    if (enabled(level)) write(level, str_cat(parts...));
  }

 private:
  void write(LogLevel level, const std::string& message) noexcept;

  LogSink sink_;  // called under mutex_
  std::optional<LogLevel> lowest_;
  Mutex mutex_;
};

/// HEADRACE_LOG_LEVEL as a level: nullopt is "off". Throws Error(kInvalidArgument) for an unknown
/// name.
std::optional<LogLevel> log_level_from_env();

}  // namespace headrace
