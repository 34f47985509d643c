#pragma once

// What quantized weights mean, in scalars: how weights are rounded to int8 and int4, and products
// with rounded activations, in doubles. It shares no line with what it is held against.

#include <cstdint>

#include "backend/contract/quant_format.h"
#include "backend/contract/weight_codes.h"

namespace headrace {

/// The sum of products of `count` e4m3 codes, at most kMaxQuantGroup, as a device adds them.
using Float8Sum = float (*)(const uint8_t* a, const uint8_t* b, int count);

/// Symmetric codes of `size` weights, and their bf16 scale. All in float32, each operation rounded:
/// Let t be the weight of largest size, of w and -w the positive one; 1 if it is below 2^-100.
/// int8: codes are w * (127 / t) to nearest, ties to even, within -127..127.
/// int4: of the clip ratios r = 1, 0.94, 0.88, 0.82 the first with the largest P / S * P, where
/// codes are w * (-8 / (t r)) to nearest within -8..7, P is the sum of w * code and S that of
/// code^2: those codes leave the least squared error. (Sums are in ascending order.)
/// The scale that fits the codes best is P / S, and 0 where all codes are; NaN if a weight isn't
/// finite. Any ISA of the CPU has the same bits.
void reference_quantize_group(const float* weights, int32_t size, int32_t bits,
                              QuantizedGroup* out);

/// Scales of a row that a weight keeps beside its numbers: of formats that rounds_rows().
int64_t reference_scales(const QuantFormat& format, int64_t k);

/// A row of weights becomes what it reads as after it was quantized. `scales`: reference_scales().
void reference_round_weights(const QuantFormat& format, int64_t k, float* row, float* scales);

/// A feature of weights that come as codes, its inputs in the codes' order.
void reference_read_codes(const WeightCodes& codes, int64_t feature, int64_t k, float* row,
                          float* scales);

/// The product of activations, rounded by groups if the format says so, with a row of such weights.
double reference_quant_dot(const QuantFormat& format, const float* x, const float* weights,
                           int64_t k);

/// The same of e4m3 codes by codes, of which `sum` adds 128 at a time; what it gives is added as
/// above.
double reference_float8_dot(const QuantFormat& format, Float8Sum sum, const float* x,
                            const float* weights, const float* scales, int64_t k);

}  // namespace headrace
