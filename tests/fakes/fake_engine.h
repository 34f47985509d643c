#pragma once

// An engine of fake models.

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/load/loaded_model.h"
#include "fakes/fake_model.h"
#include "headrace/engine.h"

namespace headrace::testing {

/// A loader of fake models, shaped by the options. EOS is token 0; the path is not read.
internal::ModelLoader fake_loader(std::shared_ptr<FakeControl> control, FakeShape shape = {});

/// An engine of fake models; "m" is installed, and started.
struct FakeEngine {
  explicit FakeEngine(ModelOptions options = default_options(), FakeShape shape = {});

  static ModelOptions default_options();
  Request submit(std::vector<int32_t> prompt, SamplingParams sampling = {.temperature = 0},
                 RequestOptions rest = {});

  std::shared_ptr<FakeControl> control;
  std::unique_ptr<Engine> engine;
};

/// Everything a request gives, until it has finished.
Output read_all(ResultQueue queue);

}  // namespace headrace::testing
