#include "chat/text_reader.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "engine/request/timed_wait.h"

namespace headrace::internal {

/// The right to read.
class TextReader::Turn {
 public:
  Turn(TextReader& reader, std::optional<std::chrono::nanoseconds> timeout) : reader_(reader) {
    MutexLock lock(reader.mutex_);
    const auto is_free = [&reader]() HEADRACE_REQUIRES(reader.mutex_) { return !reader.reading_; };
    has_it_ = wait_until_ready(reader.turn_ended_, lock, timeout, is_free);
    if (has_it_) reader.reading_ = true;
  }
  ~Turn() {
    if (!has_it_) return;
    const MutexLock lock(reader_.mutex_);
    reader_.reading_ = false;
    reader_.turn_ended_.notify_one();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  explicit operator bool() const noexcept { return has_it_; }

 private:
  TextReader& reader_;
  bool has_it_ = false;
};

TextReader::TextReader(const Request& request, OutputText text)
    : request_(request), queue_(request.results()), text_(std::move(text)) {}

TextReader::~TextReader() {
  if (finished_ || home_.left()) return;
  try {
    request_.cancel();
  } catch (const std::exception&) {  // no memory: it goes on unheard
  }
}

std::optional<TextOutput> TextReader::get(std::optional<std::chrono::nanoseconds> timeout) {
  home_.check("text stream");
  const auto start = std::chrono::steady_clock::now();
  const Turn turn(*this, timeout);
  if (!turn) return std::nullopt;
  if (end_) return end_;
  if (!timeout) return read(queue_.get());
  const std::chrono::nanoseconds waited = std::chrono::steady_clock::now() - start;
  std::optional<Output> taken = queue_.get(std::max(*timeout - waited, {}));
  if (!taken) return std::nullopt;
  return read(*std::move(taken));
}

std::optional<TextOutput> TextReader::get_nowait() {
  home_.check("text stream");
  const Turn turn(*this, std::chrono::nanoseconds(0));
  if (!turn || end_) return std::nullopt;
  std::optional<Output> taken = queue_.get_nowait();
  if (!taken) return std::nullopt;
  return read(*std::move(taken));
}

TextOutput TextReader::read(Output taken) {
  TextOutput output{std::move(taken), "", ""};
  try {
    make_text(&output);
  } catch (const Error& error) {
    output.finish_reason = FinishReason::kError;
    output.error_code = error.code();
    output.error_message = error.what();
    end(&output);
  } catch (const std::bad_alloc&) {
    output.finish_reason = FinishReason::kError;
    output.error_code = ErrorCode::kOutOfMemory;
    output.error_message = "there is no memory left for the text of the output.";
    end(&output);
  }
  return output;
}

void TextReader::make_text(TextOutput* output) {
  std::vector<int32_t>& ids = output->token_ids;
  const bool has_stop_token = output->stop_token >= 0 && !ids.empty();
  const size_t with_text = ids.size() - (has_stop_token ? 1 : 0);
  for (size_t i = 0; i < with_text && !text_.match(); ++i) {
    output->text += text_.push(ids[i]);
    if (!text_.match()) continue;
    ids.resize(i + 1);
    if (output->logprobs.size() > ids.size()) output->logprobs.resize(ids.size());
  }
  if (output->finished && !std::exchange(finished_, true)) output->text += text_.finish();
  if (!text_.match()) return;
  output->finish_reason = FinishReason::kStop;
  output->stop_string = text_.match()->string;
  output->error_code = ErrorCode::kOk;
  output->error_message.clear();
  end(output);
}

/// It is the last one, and the request needn't go on.
void TextReader::end(TextOutput* output) {
  output->finished = true;
  output->stop_token = -1;
  output->stop_sequence = -1;
  end_.emplace();
  end_->finished = true;
  end_->finish_reason = output->finish_reason;
  end_->stop_string = output->stop_string;
  end_->error_code = output->error_code;
  end_->error_message = output->error_message;
  request_.cancel();
}

}  // namespace headrace::internal

namespace headrace {

TextStream::TextStream(std::shared_ptr<internal::TextReader> reader) : reader_(std::move(reader)) {}

TextOutput TextStream::next() { return *reader_->get(std::nullopt); }

std::optional<TextOutput> TextStream::next(std::chrono::nanoseconds timeout) {
  return reader_->get(timeout);
}

std::optional<TextOutput> TextStream::next_nowait() { return reader_->get_nowait(); }

void TextStream::cancel() { reader_->cancel(); }

const Request& TextStream::request() const noexcept { return reader_->request(); }

}  // namespace headrace
