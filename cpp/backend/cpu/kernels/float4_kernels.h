#pragma once

// Kernels of float4_linear.cc that linear.cc's table names.

#include "backend/contract/quant_format.h"
#include "backend/cpu/kernels_linear.h"

namespace headrace::HEADRACE_ISA {

/// With activations as FormatF32's, [k][rows], and as FormatBf16Dot's, [k / 2][rows][2].
void float4_product_f32(const PanelTask& task);
#if defined(__AVX512BF16__)
void float4_product_bf16(const PanelTask& task);
#endif
void put_float4(const QuantizedGroup* columns, void* group);

}  // namespace headrace::HEADRACE_ISA
