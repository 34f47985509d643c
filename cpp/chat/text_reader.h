#pragma once

#include <chrono>
#include <optional>

#include "base/home_process.h"
#include "base/mutex.h"
#include "headrace/chat.h"
#include "headrace/request.h"
#include "headrace/result_queue.h"
#include "headrace/text_output.h"

namespace headrace::internal {

/// Takes a request's output and makes it text in the same order, whoever reads. Any thread may call
/// any method.
class TextReader {
 public:
  TextReader(const Request& request, OutputText text);
  /// Cancels what isn't finished.
  ~TextReader();
  TextReader(const TextReader&) = delete;
  TextReader& operator=(const TextReader&) = delete;

  /// See TextStream; a nullopt timeout waits for ever.
  std::optional<TextOutput> get(std::optional<std::chrono::nanoseconds> timeout);
  std::optional<TextOutput> get_nowait();

  void cancel() { request_.cancel(); }
  const Request& request() const noexcept { return request_; }

 private:
  class Turn;

  TextOutput read(Output taken);
  void make_text(TextOutput* output);
  void end(TextOutput* output);

  const HomeProcess home_;
  Request request_;
  ResultQueue queue_;

  Mutex mutex_;
  CondVar turn_ended_;
  // A reader has its turn while it waits, too: what comes then is for that one.
  bool reading_ HEADRACE_GUARDED_BY(mutex_) = false;

  // Of the reader whose turn it is:
  OutputText text_;
  bool finished_ = false;          ///< the queue's last output was taken
  std::optional<TextOutput> end_;  ///< a stop string or a failure has ended it
};

}  // namespace headrace::internal
