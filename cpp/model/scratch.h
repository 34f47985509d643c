#pragma once

#include <cstddef>
#include <cstdint>

#include "model/decoder.h"

namespace headrace {

/// Memory for the activations of one step of T rows, S of which want logits.
/// H hidden size, I intermediate size, d head size, V vocabulary.
struct Scratch {
  TensorView residual;         ///< [T, H]
  TensorView normed;           ///< [T, H]
  TensorView delta;            ///< [T, H] what a block adds to the residual
  TensorView rope;             ///< [T, rotary_dim] f32
  TensorView qkv;              ///< [T, (nq + 2 nkv) d]; shares memory with gated
  TensorView mixed;            ///< [T, nq d] values mixed by attention
  TensorView gated;            ///< [T, I]
  TensorView gate_up;          ///< [T, 2 I]; without adapters [0, 0], likewise lora
  TensorView lora;             ///< [T, ranks] f32 for Backend::lora
  TensorView chosen_residual;  ///< [S, H] rows that want logits
  TensorView chosen_mixed;     ///< [S, nq d]
  TensorView logits;           ///< [S, V] f32
};

/// The largest step's scratch at `base` (aligned to 256; null to learn the size alone).
/// `bytes` receives the memory it takes.
Scratch lay_out_scratch(const ModelConfig& config, const DecoderOptions& options, DType activation,
                        void* base, size_t* bytes);

}  // namespace headrace
