#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/abi.h"
#include "headrace/status.h"

namespace headrace::internal {
class RequestState;
}

namespace headrace::inline v0 {

enum class RequestStatus : uint8_t {
  kWaiting,     ///< accepted, nothing computed yet (or preempted before its first token)
  kPrefill,     ///< its prompt is being computed
  kGenerating,  ///< at least one token has been generated
  kFinished,    ///< ended; finish_reason says why
};

enum class FinishReason : uint8_t {
  kNone,         ///< not finished
  kStop,         ///< EOS, a stop token or a stop sequence; or what RequestOptions::pooling asks for
  kLength,       ///< max_tokens or the context
  kAbort,        ///< cancelled by its owner, or the model was released
  kError,        ///< error_code and error_message say what happened
  kInterrupted,  ///< no KV blocks were left (ModelOptions::out_of_blocks); its tokens are valid
};

/// Log-probability of one position: the token's own, its rank (1 = best), and the k best tokens,
/// best first.
struct PositionLogprobs {
  int32_t token = 0;
  float logprob = 0.0f;
  int32_t rank = 0;
  std::vector<std::pair<int32_t, float>> top;
};

/// What came since the last read.
struct Output {
  std::vector<int32_t> token_ids;
  std::vector<PositionLogprobs> logprobs;         ///< one per token id, when asked for
  std::vector<PositionLogprobs> prompt_logprobs;  ///< prompt_len - 1 entries, once, before tokens
  std::vector<float> pooled;  ///< what RequestOptions::pooling asks for, with the last output
  bool finished = false;      ///< this is the last output of the request
  FinishReason finish_reason = FinishReason::kNone;
  int32_t stop_token = -1;     ///< the EOS or stop token that ended it; -1: none
  int32_t stop_sequence = -1;  ///< which of SamplingParams::stop_sequences ended it; -1: none
  ErrorCode error_code = ErrorCode::kOk;
  std::string error_message;
};

/// Times are seconds on std::chrono::system_clock's epoch, as of the first request: differences are
/// true, also between requests, whatever is done to the clock later. 0 = has not happened.
struct RequestStats {
  double arrival_time = 0;          ///< submit() was called
  double first_scheduled_time = 0;  ///< its first tokens entered a step
  double first_token_time = 0;      ///< its prompt was computed, too: one step does both
  double last_token_time = 0;
  double finished_time = 0;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;       ///< prompt tokens found in the prefix cache when first admitted
  int32_t host_cached_tokens = 0;  ///< those of them that came back from host blocks (swap_space)
  int32_t generated_tokens = 0;
  int32_t preemptions = 0;
  int32_t replica = 0;  ///< that computes it, < ModelOptions::data_parallel_size
  int32_t image_tokens = 0, video_tokens = 0;  ///< of prompt_tokens: rows of RequestOptions::media
};

class OutputSelector;

/// Output of one request. Any thread may call any method. Holds its own state: it stays valid
/// after the request, the model and the engine are gone, and then answers that it is finished.
/// Tokens become visible before the status that ends them.
class HEADRACE_API ResultQueue {
 public:
  explicit ResultQueue(std::shared_ptr<internal::RequestState> state);

  /// Waits for new output and takes all of it. After the last output: a finished one without
  /// tokens, at once, every time.
  Output get();
  /// The same; nullopt if nothing came within `timeout`.
  std::optional<Output> get(std::chrono::nanoseconds timeout);
  /// nullopt if nothing new is there; so, too, once the last output has been taken.
  std::optional<Output> get_nowait();

  RequestStatus status() const;
  FinishReason finish_reason() const;  ///< kNone until it has finished; takes no output
  size_t generated_length() const;     ///< tokens generated so far, taken or not
  RequestStats stats() const;

  /// `callback` runs on the engine's thread whenever new output is there (and once at once, on the
  /// caller's, if some is already). Calls never overlap. It must be quick and must not throw; it
  /// may call any method of this class and Engine::submit. Replaces the one set before; an empty
  /// one unsets; returns when no call of the old one is running, unless called from within it. It
  /// is dropped after the last output.
  void on_output(std::function<void()> callback);

  /// Whether both read the same request.
  bool operator==(const ResultQueue& other) const = default;

 private:
  friend class OutputSelector;

  std::shared_ptr<internal::RequestState> state_;
};

}  // namespace headrace::inline v0
