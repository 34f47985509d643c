#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/abi.h"
#include "headrace/media_input.h"
#include "headrace/pooling_params.h"
#include "headrace/result_queue.h"
#include "headrace/sampling_params.h"
#include "headrace/token_constraint.h"

namespace headrace::inline v0 {

struct RequestOptions {
  std::string request_id{};  ///< for messages only; "" = the engine makes one
  /// 1 .. max_model_len - 1 ids within the vocabulary; with `pooling` max_model_len.
  std::vector<int32_t> prompt_token_ids{};
  SamplingParams sampling{};
  std::string lora_name{};  ///< an adapter that is loaded; "": none
  int32_t priority = 0;     ///< lower runs first; equal ones in order of arrival
  /// Gives up (finish_reason error, kDeadlineExceeded) when this much time has passed since
  /// submit(). nullopt: never.
  std::optional<std::chrono::nanoseconds> timeout{};
  /// Guided decoding: which tokens may be generated. Null: all.
  std::shared_ptr<TokenConstraint> constraint{};
  /// An embedding of the prompt, or logits behind it, as Output::pooled, instead of text. Nothing
  /// is sampled: `sampling` stays as it is made and `constraint` null.
  std::optional<PoolingParams> pooling{};
  /// Images and clips, in order of position in the prompt, whose runs don't overlap. Errors name
  /// the item: "media[1]: ...".
  std::vector<MediaInput> media{};
};

/// Handle of a submitted request. Copies refer to the same request; any thread may use it.
/// Dropping every handle and queue does not cancel the request. In a fork()ed child every method
/// but id(), seed() and results() throws Error(kInvalidState), and so do those of the queue.
class HEADRACE_API Request {
 public:
  explicit Request(std::shared_ptr<internal::RequestState> state);

  const std::string& id() const;
  uint64_t seed() const;  ///< the seed in use, also when the engine picked it
  ResultQueue results() const;
  /// Ends the request with kAbort; what it generated stays readable. Returns at once; no effect
  /// on a finished one.
  void cancel();
  /// Waits until it has finished.
  void wait() const;
  /// False if `timeout` passed first.
  bool wait(std::chrono::nanoseconds timeout) const;

 private:
  std::shared_ptr<internal::RequestState> state_;
};

}  // namespace headrace::inline v0
