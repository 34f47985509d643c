#pragma once

// Which layers of a checkpoint are stored as codes.

#include "model/checkpoint/checkpoint.h"
#include "model/config/quantization.h"
#include "model/config/stored_quantization.h"
#include "model/sources/model_sources.h"

namespace headrace {

/// Sets codes and format of every matrix that the checkpoint stores as codes, by its tensors'
/// names; of the others, which a tool was told to leave out, a layer's keep the model's dtype, and
/// a head or a tower's linear the format that it has. FP8 and MXFP4 are numbers instead, part by
/// part, which are kept like any others, unless the device multiplies FP8 (code_products) or keeps
/// MXFP4 (float4_weights), no other `quantization` is asked for, and all parts of the matrix are
/// such. Heads of latent attention are numbers whatever they are stored as. All point into the
/// checkpoint. Throws Error naming the tensor: kNotFound, kCorruptFile (a shape, a scale, a zero
/// point or an entry of g_idx that can't be), kUnsupported (parts of one matrix stored in different
/// ways).
void attach_codes(const StoredQuantization& stored, const Checkpoint& checkpoint,
                  const Quantization& quantization, ModelSources& sources);

/// How a layer's matrix will be kept, roughly: zero points are known from the file alone, and so is
/// what a tool left out.
QuantFormat likely_format(const StoredQuantization& stored, const Quantization& quantization,
                          bool is_experts);

}  // namespace headrace
