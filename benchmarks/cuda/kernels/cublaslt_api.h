#pragma once

// The part of cuBLASLt's binary interface that cublaslt.cc calls, declared here so that neither its
// header nor its library is needed to build. The same in CUDA 12 and 13.

#include <cstddef>
#include <cstdint>

#include "cuda/host/runtime/cuda_check.h"

namespace headrace::bench::lt {

using Status = int;
inline constexpr Status kSuccess = 0;

struct Context;
using Handle = Context*;
struct DescOpaque;
using Desc = DescOpaque*;
struct LayoutOpaque;
using Layout = LayoutOpaque*;
struct PreferenceOpaque;
using Preference = PreferenceOpaque*;

struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};

// cudaDataType_t, cublasComputeType_t, cublasOperation_t.
inline constexpr int kBf16 = 14, kF32 = 0, kFloat8 = 28;  // e4m3
inline constexpr int kComputeF32 = 68;
inline constexpr int32_t kTransposed = 1;
// Attributes.
inline constexpr int kDescTransA = 3, kDescFastSums = 25;  // the latter of one byte
inline constexpr int kPreferenceWorkspaceBytes = 1;

using Create = Status(Handle*);
using Destroy = Status(Handle);
using GetVersion = size_t();
using DescCreate = Status(Desc*, int compute_type, int scale_type);
using DescDestroy = Status(Desc);
using DescSet = Status(Desc, int attribute, const void* value, size_t bytes);
using LayoutCreate = Status(Layout*, int type, uint64_t rows, uint64_t cols, int64_t stride);
using LayoutDestroy = Status(Layout);
using PreferenceCreate = Status(Preference*);
using PreferenceDestroy = Status(Preference);
using PreferenceSet = Status(Preference, int attribute, const void* value, size_t bytes);
using GetHeuristics = Status(Handle, Desc, Layout a, Layout b, Layout c, Layout d, Preference,
                             int requested, Heuristic*, int* found);
using Matmul = Status(Handle, Desc, const void* alpha, const void* a, Layout, const void* b, Layout,
                      const void* beta, const void* c, Layout, void* d, Layout, const Algorithm*,
                      void* workspace, size_t workspace_bytes, cuda::Stream);

}  // namespace headrace::bench::lt
