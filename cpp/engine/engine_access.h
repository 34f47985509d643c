#pragma once

#include <memory>

#include "engine/load/loaded_model.h"
#include "headrace/engine.h"

namespace headrace::internal {

/// Makes engines whose models come from elsewhere than load_model().
struct EngineAccess {
  static std::unique_ptr<Engine> make(EngineOptions options, ModelLoader loader);
};

}  // namespace headrace::internal
