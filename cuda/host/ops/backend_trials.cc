// Kernels that nothing replaces: what needs them is refused on a GPU that fails their trials.

#include <string>

#include "base/check.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/host/trials/kernel_trials.h"

namespace headrace::cuda {

void CudaBackend::try_needed_kernels() {
  const auto note = [&](const char* kernels, const std::string& why, std::string& refused) {
    if (why.empty()) return;
    refused = str_cat(kernels, " (", why, ")");
    replaced_kernels_.push_back(str_cat(refused, ": what needs them is refused"));
  };
  note("linears of int4 and int8 weights", try_quant_linears(context_, cuda::quant_linear),
       refused_.quant);
  note("linears of FP8 and int8 weights and rows",
       try_rounded_linears(context_, cuda::quant_linear), refused_.rounded);
  note("products of experts", try_experts(context_, cuda::grouped_linear), refused_.experts);
  note("RMS norms", try_norms(context_, cuda::rms_norm), refused_.norms);
  note("writes to quantized KV caches", try_code_writes(context_, cuda::rope_kv_write),
       refused_.code_writes);
}

void CudaBackend::refuse(const std::string& kernels) const {
  if (kernels.empty()) return;
  int driver = 0;
  static_cast<void>(context_.api().driver_version(&driver));
  throw_error(ErrorCode::kUnsupported, "cuda:", context_.device(), " (", context_.properties().name,
              ", driver of CUDA ", driver / 1000, ".", driver % 1000 / 10,
              ") fails the trial of kernels that the model needs: ", kernels,
              "; use device cpu, or install another driver.");
}

// In float32 weights have kernels of their own, which are plain.
void CudaBackend::refuse_weight(const QuantFormat& quant, DType storage, int32_t experts) const {
  if (rounds_rows(quant)) refuse(refused_.rounded);
  if (storage == DType::kF32) return;
  if (quant.bits != 0 && !rounds_rows(quant)) refuse(refused_.quant);
  if (experts > 1) refuse(refused_.experts);
}

}  // namespace headrace::cuda
