#pragma once

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "headrace/engine.h"

namespace headrace::testing {

/// Holds the thread of model "m", in a callback, until `released` is ready.
inline void hold(Engine& engine, const std::shared_future<void>& released) {
  enum Stage { kOpen, kHeld, kMissed };
  for (;;) {
    auto stage = std::make_shared<std::atomic<Stage>>(kOpen);
    Request plug = engine.submit(
        "m", {.prompt_token_ids = {3}, .sampling = {.max_tokens = 100, .ignore_eos = true}});
    plug.results().on_output([stage, released, here = std::this_thread::get_id()] {
      if (std::this_thread::get_id() == here) return;  // some output was there already
      Stage open = kOpen;
      if (stage->compare_exchange_strong(open, kHeld)) released.wait();
    });
    while (*stage == kOpen) {
      Stage open = kOpen;
      if (plug.wait(std::chrono::milliseconds(1))) stage->compare_exchange_strong(open, kMissed);
    }
    if (*stage == kHeld) return;
  }
}

}  // namespace headrace::testing
