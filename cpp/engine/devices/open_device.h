#pragma once

// Opens the backend that a model runs on.

#include <functional>
#include <memory>
#include <string>

#include "backend/contract/backend.h"
#include "base/check.h"
#include "base/log.h"
#include "headrace/options.h"

namespace headrace::internal {

/// The backend that the options name, able to run what `needs` says. "auto" is the first GPU if the
/// CUDA plug-in is there, the GPU is usable and runs the model, and no option asks for the CPU
/// (cpu_isa, a packed file: `packed`), else the CPU. Throws Error(kUnsupported) naming what is
/// missing, Error(kDevice) if the GPU fails. Logs why "auto" is not a GPU.
std::shared_ptr<Backend> open_device(const ModelOptions& options, bool packed,
                                     const BackendNeeds& needs, Logger& logger);

/// Logs why device "auto" is the CPU: a warning where the system shows an NVIDIA GPU, else for
/// debugging only. `root`: of the file system in which GPUs are looked for.
void log_cpu_fallback(const Error& why, Logger& logger, const std::string& root = "/");
/// The same where there is a GPU for sure.
void warn_cpu_fallback(const Error& why, Logger& logger);

}  // namespace headrace::internal
