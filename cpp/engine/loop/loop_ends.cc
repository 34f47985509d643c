#include "engine/loop/loop_ends.h"

#include <future>
#include <utility>
#include <variant>

#include "base/check.h"

namespace headrace::internal {

void end_hopeless(LiveRequest& live, OutputDelta& delta) {
  if (live.not_finite) {
    delta = to_delta({FinishReason::kError, ErrorCode::kNotFinite,
                      str_cat("the model's ", live.pooler ? "rows" : "logits",
                              " for this request hold NaN or infinity: its weights or its adapter "
                              "compute with numbers too large for their dtype.")});
    return;
  }
  HEADRACE_CHECK(live.guide && live.guide->next() != Guide::Next::kTokens);
  const bool failed = live.guide->next() == Guide::Next::kFailed;
  const Ending ending =
      failed ? describe(live.guide->failure()) : Ending{FinishReason::kStop, ErrorCode::kOk, {}};
  delta = to_delta(ending);
  delta.prompt_logprobs = std::exchange(live.prompt_logprobs, {});
}

Ending describe_failure(const EncoderStage::Failure& failure) {
  Ending ending = describe(failure.why);
  ending.message = str_cat("media[", failure.item, "]: ", ending.message);
  return ending;
}

void refuse(std::vector<Command>& commands, const Ending& ending) noexcept {
  for (Command& command : commands) {
    const auto* request = std::get_if<PreparedRequest>(&command);
    if (request != nullptr && request->state) deliver(*request->state, ending);
    auto* clear = std::get_if<ClearCacheCommand>(&command);
    if (clear == nullptr) continue;
    try {
      clear->done.set_value(false);
    } catch (const std::future_error&) {  // it was done before the failure
    }
  }
}

FinishReason finish_reason(SeqEnd end) {
  switch (end) {
    case SeqEnd::kNone:
      return FinishReason::kNone;
    case SeqEnd::kStopToken:
    case SeqEnd::kStopSequence:
    case SeqEnd::kPrompt:
      return FinishReason::kStop;
    case SeqEnd::kLength:
      return FinishReason::kLength;
    case SeqEnd::kCancelled:
      return FinishReason::kAbort;
  }
  return FinishReason::kError;
}

}  // namespace headrace::internal
