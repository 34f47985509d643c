#include "backend/cpu/cpu_isa.h"

#include "backend/cpu/cpu_backend.h"
#include "base/check.h"

#define HEADRACE_DECLARE_KERNELS(isa)              \
  namespace headrace::isa {                        \
  extern const LinearKernels kLinearKernels;       \
  extern const LoraKernels kLoraKernels;           \
  extern const RowKernels kRowKernels;             \
  extern const AttentionKernels kAttentionKernels; \
  extern const SampleKernels kSampleKernels;       \
  extern const SegmentKernels kSegmentKernels;     \
  extern const VisionRowKernels kVisionRowKernels; \
  extern const StateKernels kStateKernels;         \
  }

#define HEADRACE_DECLARE_QUANT_KERNELS(isa) \
  namespace headrace::isa {                 \
  extern const QuantKernels kQuantKernels;  \
  }

HEADRACE_DECLARE_KERNELS(baseline)
HEADRACE_DECLARE_KERNELS(avx2)
HEADRACE_DECLARE_KERNELS(avx512)
HEADRACE_DECLARE_KERNELS(avx512_bf16)
HEADRACE_DECLARE_QUANT_KERNELS(baseline)
HEADRACE_DECLARE_QUANT_KERNELS(avx2)
HEADRACE_DECLARE_QUANT_KERNELS(avx2_vnni)
HEADRACE_DECLARE_QUANT_KERNELS(avx512)
HEADRACE_DECLARE_QUANT_KERNELS(avx512_vnni)

namespace headrace {

namespace {

bool has_baseline() { return true; }

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool has_avx512_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }

[[maybe_unused]] bool has_avx512_bf16() {
  return has_avx512_vnni() && __builtin_cpu_supports("avx512bf16");
}

[[maybe_unused]] bool has_avx2_vnni() { return has_avx2() && __builtin_cpu_supports("avxvnni"); }

// Every CPU with BF16 has VNNI. VNNI matters to quantized weights only.
constexpr CpuIsa kIsas[] = {
#ifndef HEADRACE_TWO_ISAS  // builds with sanitizers
    {"avx512_bf16", "AVX-512 F, BW, VL, DQ, VNNI, BF16", has_avx512_bf16,
     &avx512_bf16::kLinearKernels, &avx512_vnni::kQuantKernels, &avx512_bf16::kLoraKernels,
     &avx512_bf16::kRowKernels, &avx512_bf16::kAttentionKernels, &avx512_bf16::kSampleKernels,
     &avx512_bf16::kSegmentKernels, &avx512_bf16::kVisionRowKernels, &avx512_bf16::kStateKernels},
    {"avx512_vnni", "AVX-512 F, BW, VL, DQ, VNNI", has_avx512_vnni, &avx512::kLinearKernels,
     &avx512_vnni::kQuantKernels, &avx512::kLoraKernels, &avx512::kRowKernels,
     &avx512::kAttentionKernels, &avx512::kSampleKernels, &avx512::kSegmentKernels,
     &avx512::kVisionRowKernels, &avx512::kStateKernels},
    {"avx512", "AVX-512 F, BW, VL, DQ", has_avx512, &avx512::kLinearKernels, &avx512::kQuantKernels,
     &avx512::kLoraKernels, &avx512::kRowKernels, &avx512::kAttentionKernels,
     &avx512::kSampleKernels, &avx512::kSegmentKernels, &avx512::kVisionRowKernels,
     &avx512::kStateKernels},
    {"avx2_vnni", "AVX2, FMA, F16C, AVX-VNNI", has_avx2_vnni, &avx2::kLinearKernels,
     &avx2_vnni::kQuantKernels, &avx2::kLoraKernels, &avx2::kRowKernels, &avx2::kAttentionKernels,
     &avx2::kSampleKernels, &avx2::kSegmentKernels, &avx2::kVisionRowKernels, &avx2::kStateKernels},
#endif
    {"avx2", "AVX2, FMA, F16C", has_avx2, &avx2::kLinearKernels, &avx2::kQuantKernels,
     &avx2::kLoraKernels, &avx2::kRowKernels, &avx2::kAttentionKernels, &avx2::kSampleKernels,
     &avx2::kSegmentKernels, &avx2::kVisionRowKernels, &avx2::kStateKernels},
    {"baseline", "x86-64", has_baseline, &baseline::kLinearKernels, &baseline::kQuantKernels,
     &baseline::kLoraKernels, &baseline::kRowKernels, &baseline::kAttentionKernels,
     &baseline::kSampleKernels, &baseline::kSegmentKernels, &baseline::kVisionRowKernels,
     &baseline::kStateKernels},
};

}  // namespace

std::span<const CpuIsa> all_cpu_isas() noexcept { return kIsas; }

std::vector<std::string> v0::available_cpu_isas() {
  std::vector<std::string> names;
  for (const CpuIsa& isa : kIsas) {
    if (isa.available()) names.emplace_back(isa.name);
  }
  names.emplace_back("reference");
  return names;
}

const CpuIsa& select_cpu_isa(const std::string& name) {
  std::string problem = str_cat("CPU instruction set '", name, "' is unknown");
  for (const CpuIsa& isa : kIsas) {
    if (!name.empty() && name != isa.name) continue;
    if (isa.available()) return isa;
    if (!name.empty())
      problem = str_cat("this machine's CPU lacks ", isa.needs, " for '", name, "'");
  }
  std::string names;
  for (const std::string& available : available_cpu_isas()) {
    names += (names.empty() ? "" : ", ") + available;
  }
  throw_error(ErrorCode::kUnsupported, problem, "; available here: ", names,
              " (set HEADRACE_CPU_ISA or CpuBackendOptions::isa to one of these, or to nothing)");
}

}  // namespace headrace
