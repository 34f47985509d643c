#pragma once

#include "backend/contract/state_ops.h"
#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"
#include "cuda/kernels/states/state_step.h"

namespace headrace::cuda {

struct SsmScanArgs {
  DType dtype = DType::kF32;     ///< of xbc, dt and out
  ConstMatrix xbc;               ///< [T, spec.xbc_columns()]
  ConstMatrix dt;                ///< [T, spec.heads]
  const float* a_log = nullptr;  ///< [spec.heads], as the next two
  const float* dt_bias = nullptr;
  const float* skip = nullptr;
  ScanSpec spec;
  StateStep step;
  StateArray states;  ///< matrices
  Matrix out;         ///< [T, spec.x_columns()]
};

/// See Backend::ssm_scan. Moves what delta_rule() moves, with x for v, B for k and C for q.
void ssm_scan(const SsmScanArgs& args, Stream stream);

}  // namespace headrace::cuda
