// The engine whose models come from folders.

#include <memory>
#include <utility>

#include "engine/engine_impl.h"
#include "engine/load/load_model.h"

namespace headrace {

Engine::Engine(EngineOptions options)
    : Engine(std::make_unique<Impl>(std::move(options), internal::load_model)) {}

}  // namespace headrace
