#pragma once

// Packed files: a model's weights the way this machine's kernels read them, so that a start maps
// them instead of converting them. docs/packed.md has the format and what is checked.
//
//   headrace::pack_model({.path = "ERNIE-4.5-0.3B-PT"}, "/cache/ernie.headrace");
//   engine.install_model("m", {.path = "ERNIE-4.5-0.3B-PT",
//                              .packed_weights = "/cache/ernie.headrace"});

#include <cstddef>
#include <cstdint>
#include <string>

#include "headrace/abi.h"
#include "headrace/options.h"

namespace headrace::inline v0 {

/// In a folder that has config.json but no weights of its own, a packed file of this name is found
/// without ModelOptions::packed_weights.
inline constexpr const char* kPackedFileName = "model.headrace";

struct PackReport {
  std::string file, layout, dtype, isa;
  int64_t num_tensors = 0;
  size_t file_bytes = 0;
  double seconds = 0;
};

/// Packs the weights in options.path, as install_model with these options would, into `file`. Of
/// the options path, device, dtype, quantization, num_threads, cpu_isa, tensor_parallel_size and
/// enable_expert_parallel count: a file for several devices holds each one's part. Holds one weight
/// in memory at a time. The file appears whole or not at all and replaces an older one, which
/// models that use it keep. Any thread may call it. Throws Error: what install_model throws for the
/// folder, kInvalidArgument for a `file` that is part of the model, kInvalidState if the folder
/// changes meanwhile, kIo.
HEADRACE_API PackReport pack_model(const ModelOptions& options, const std::string& file);

/// Throws the Error with which install_model with these options would refuse
/// options.packed_weights: kInvalidState for a stale file, kUnsupported for one of another layout,
/// dtype or version, kCorruptFile for a damaged one, kNotFound, kIo. Reads the whole file.
HEADRACE_API void check_packed(const ModelOptions& options);

}  // namespace headrace::inline v0
