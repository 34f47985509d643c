#pragma once

// Whole models whose linears round activations: the GPU under test against the reference.

#include <memory>
#include <string>

#include "cpp/model/decoder_harness.h"

namespace headrace {

/// The reference, which multiplies codes by codes. Linears of e4m3 are added as `gpu` does: on
/// Hopper in short sums, which tip some activations to the next code. Held against exact sums a
/// model's answers would differ by as much as rounding itself makes of them.
std::shared_ptr<Backend> make_rounding_reference(const Backend& gpu);

/// The model with rounded activations is what both compute, of the tokens that the reference likes
/// best: where float32 sums of another order tip an activation to the next code they part, by far
/// less than rounding all of them does. `plain`: the checkpoint that isn't quantized. `stored`:
/// `folder` has codes; else options.quantization makes them.
void expect_rounded(const std::string& folder, const HarnessOptions& options,
                    const std::string& plain, bool stored);

}  // namespace headrace
