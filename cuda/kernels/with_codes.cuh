#pragma once

// Run-time dtypes of quantized KV caches to template arguments.

#include <utility>

#include "base/check.h"
#include "cuda/device/kv_codes.cuh"
#include "cuda/kernels/kv_layout.h"

namespace headrace::cuda {

/// Calls f(Cache{}) for a cache of codes.
template <class F>
void with_codes(DType dtype, F&& f) {
  HEADRACE_CHECK(kv_has_scales(dtype), dtype_name(dtype));
  if (dtype == DType::kI8) return f(CodeI8{});
  if (dtype == DType::kU4) return f(CodeU4{});
  return f(CodeF8{});
}

}  // namespace headrace::cuda
