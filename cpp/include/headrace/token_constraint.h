#pragma once

// Guided decoding: a rule from outside says which tokens may come next.
//
// A request that carries a TokenConstraint gets a TokenMatcher of its own, which follows its
// output. The engine asks the matcher on a worker thread right after a token has been chosen, so
// that the answer is there before the model's next logits are. See headrace/grammar.h for
// constraints made from grammars.
//
// How an output under a constraint ends:
//
// The model's EOS ids may come exactly where the matcher says that the output may end, and never
// before min_tokens. With ignore_eos they get no such help.
//
// The request's stop_token_ids may come there, too, and wherever the matcher itself allows them:
// then they cut the output, as max_tokens may.
//
// Where the output may end, nothing may follow and no such token is possible (ignore_eos,
// min_tokens), the request ends with FinishReason::kStop and no further token.
//
// A matcher that throws, or allows neither a token nor the end, ends its own request with
// FinishReason::kError and nobody else's. One that lets a step wait for more than a second of its
// thread's CPU time (or a minute of anybody's) is told by interrupt() to throw. So is one
// that is at work when its model is released.
//
// Everything else about sampling applies to the tokens that are left: logit_bias, penalties, top_k
// and so on. If it leaves none of them (bad_words), the constraint wins.

#include <cstdint>
#include <memory>
#include <span>

#include "headrace/abi.h"

namespace headrace::inline v0 {

/// Follows one output. Used by one thread at a time, not always by the same, but for interrupt().
/// Its methods return in bounded time, may throw, and must not call the engine.
class HEADRACE_API TokenMatcher {
 public:
  virtual ~TokenMatcher();

  /// Sets bit t % 32 of allowed[t / 32] for each id t that may come next; every bit is 0 before.
  /// Bits beyond the vocabulary have no effect. True: the output may end here.
  virtual bool next(std::span<uint32_t> allowed) = 0;
  /// `token`, which the last next() allowed, has become part of the output.
  virtual void append(int32_t token) = 0;
  /// A call of next() or append() on another thread takes too long, or nobody needs its answer any
  /// more: it should throw soon, because the model waits for it. Does nothing by default.
  virtual void interrupt() noexcept;
};

/// Immutable: any number of requests may carry it at the same time.
class HEADRACE_API TokenConstraint {
 public:
  virtual ~TokenConstraint();

  /// A matcher at the start of an output. Called from any thread, also at the same time; may throw.
  virtual std::unique_ptr<TokenMatcher> start() const = 0;
};

}  // namespace headrace::inline v0
