#pragma once

// Kernels of quant_rows.cc and quant_round.cc that quant_linear.cc's table names.

#include "backend/cpu/kernels_quant.h"

namespace headrace::HEADRACE_ISA {

#if defined(__AVX512VNNI__)
constexpr int kQuantTileRows = 6;
#elif defined(__AVX512F__)
constexpr int kQuantTileRows = 4;
#elif defined(__AVX2__) && !defined(__AVXVNNI__)
constexpr int kQuantTileRows = 3;
#else
constexpr int kQuantTileRows = 2;
#endif

#if defined(__AVX512VNNI__)
constexpr int kQuantManyTileRows = 3;
#else
constexpr int kQuantManyTileRows = kQuantTileRows;
#endif

void quant_pack_rows(const QuantRows& rows, void* packed);
void quant_quantize_panel(const float* columns, int64_t stride, const QuantFormat& format,
                          void* group);
void quant_quantize_group(const float* weights, int32_t size, int32_t bits, QuantizedGroup* out);

}  // namespace headrace::HEADRACE_ISA
