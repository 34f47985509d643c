#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "headrace/c.h"
#include "headrace/result_queue.h"

namespace headrace::c_api {

/// Log-probabilities of some positions as C sees them, which point into storage beside them.
class PositionView {
 public:
  explicit PositionView(const std::vector<PositionLogprobs>& from) {
    size_t count = 0;
    for (const PositionLogprobs& each : from) count += each.top.size();
    top_.reserve(count);  // pointers into it stay valid
    for (const PositionLogprobs& each : from) {
      const headrace_token_logprob* first = top_.data() + top_.size();
      for (const auto& [token, logprob] : each.top) top_.push_back({token, logprob});
      positions_.push_back({.token = each.token,
                            .logprob = each.logprob,
                            .rank = each.rank,
                            .reserved = 0,
                            .top = first,
                            .num_top = each.top.size()});
    }
  }

  std::span<const headrace_position_logprobs> positions() const { return positions_; }

 private:
  std::vector<headrace_token_logprob> top_;
  std::vector<headrace_position_logprobs> positions_;
};

/// What the public struct points into.
struct OwnedOutput : headrace_output {
  explicit OwnedOutput(Output from)
      : headrace_output{},
        data(std::move(from)),
        own_logprobs(data.logprobs),
        own_prompt_logprobs(data.prompt_logprobs) {
    struct_size = sizeof(headrace_output);
    token_ids = data.token_ids.data();
    num_token_ids = data.token_ids.size();
    logprobs = own_logprobs.positions().data();
    num_logprobs = own_logprobs.positions().size();
    prompt_logprobs = own_prompt_logprobs.positions().data();
    num_prompt_logprobs = own_prompt_logprobs.positions().size();
    error_message = data.error_message.c_str();
    error_code = static_cast<headrace_code>(data.error_code);
    finished = data.finished;
    finish_reason = static_cast<int32_t>(data.finish_reason);
    stop_token = data.stop_token;
    pooled = data.pooled.data();
    num_pooled = data.pooled.size();
    stop_sequence = data.stop_sequence;
  }

  const Output data;
  const PositionView own_logprobs;
  const PositionView own_prompt_logprobs;
};

}  // namespace headrace::c_api
