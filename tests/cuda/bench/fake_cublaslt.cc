// A libcublasLt with the calls that benchmarks/cuda/kernels/cublaslt.cc makes, in plain C++ over
// host memory: what it computes, from the layouts it is given, is what the real one would.

#include <cmath>
#include <cstdlib>
#include <string_view>

#include "benchmarks/cuda/kernels/cublaslt_api.h"
#include "tensor/dtype.h"

namespace lt = headrace::bench::lt;

#define FAKE_API __attribute__((visibility("default")))

struct headrace::bench::lt::Context {};
struct headrace::bench::lt::DescOpaque {
  bool transpose_a = false;
};
struct headrace::bench::lt::LayoutOpaque {
  uint64_t rows, cols;
  int64_t stride;
  int type;
};
struct headrace::bench::lt::PreferenceOpaque {
  size_t workspace = 0;
};

namespace {

constexpr lt::Status kInvalidValue = 7;
constexpr int kAlgorithms = 3;

bool plays(std::string_view part) {
  const char* const wanted = std::getenv("FAKE_CUBLASLT");
  return wanted != nullptr && part == wanted;
}

float float8(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                   : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return code < 0x80 ? size : -size;
}

float at(const void* data, const lt::LayoutOpaque& layout, uint64_t row, uint64_t col) {
  const uint64_t place = col * static_cast<uint64_t>(layout.stride) + row;
  if (layout.type == lt::kFloat8) return float8(static_cast<const uint8_t*>(data)[place]);
  return headrace::bf16_to_f32(static_cast<const uint16_t*>(data)[place]);
}

}  // namespace

extern "C" {

FAKE_API lt::Status cublasLtCreate(lt::Handle* handle) {
  if (plays("absent")) return 1;
  *handle = new lt::Context;
  return lt::kSuccess;
}
FAKE_API lt::Status cublasLtDestroy(lt::Handle handle) {
  delete handle;
  return lt::kSuccess;
}
FAKE_API size_t cublasLtGetVersion() { return 130102; }

FAKE_API lt::Status cublasLtMatmulDescCreate(lt::Desc* desc, int compute, int scale) {
  if (compute != lt::kComputeF32 || scale != lt::kF32) return kInvalidValue;
  *desc = new lt::DescOpaque;
  return lt::kSuccess;
}
FAKE_API lt::Status cublasLtMatmulDescDestroy(lt::Desc desc) {
  delete desc;
  return lt::kSuccess;
}
FAKE_API lt::Status cublasLtMatmulDescSetAttribute(lt::Desc desc, int attribute, const void* value,
                                                   size_t bytes) {
  if (attribute != lt::kDescTransA || bytes != sizeof(int32_t)) return kInvalidValue;
  desc->transpose_a = *static_cast<const int32_t*>(value) == lt::kTransposed;
  return lt::kSuccess;
}

FAKE_API lt::Status cublasLtMatrixLayoutCreate(lt::Layout* layout, int type, uint64_t rows,
                                               uint64_t cols, int64_t stride) {
  if ((type != lt::kBf16 && type != lt::kFloat8) || stride < static_cast<int64_t>(rows)) {
    return kInvalidValue;
  }
  *layout = new lt::LayoutOpaque{rows, cols, stride, type};
  return lt::kSuccess;
}
FAKE_API lt::Status cublasLtMatrixLayoutDestroy(lt::Layout layout) {
  delete layout;
  return lt::kSuccess;
}

FAKE_API lt::Status cublasLtMatmulPreferenceCreate(lt::Preference* preference) {
  *preference = new lt::PreferenceOpaque;
  return lt::kSuccess;
}
FAKE_API lt::Status cublasLtMatmulPreferenceDestroy(lt::Preference preference) {
  delete preference;
  return lt::kSuccess;
}
FAKE_API lt::Status cublasLtMatmulPreferenceSetAttribute(lt::Preference preference, int attribute,
                                                         const void* value, size_t bytes) {
  if (attribute != lt::kPreferenceWorkspaceBytes || bytes != sizeof(size_t)) return kInvalidValue;
  preference->workspace = *static_cast<const size_t*>(value);
  return lt::kSuccess;
}

// The second of three algorithms can't be used.
FAKE_API lt::Status cublasLtMatmulAlgoGetHeuristic(lt::Handle, lt::Desc desc, lt::Layout a,
                                                   lt::Layout b, lt::Layout c, lt::Layout d,
                                                   lt::Preference preference, int requested,
                                                   lt::Heuristic* results, int* found) {
  if (!desc->transpose_a || a->rows != b->rows || a->cols != d->rows || b->cols != d->cols ||
      c->rows != d->rows || a->type != b->type || d->type != lt::kBf16 ||
      preference->workspace == 0 || requested < kAlgorithms) {
    return kInvalidValue;
  }
  for (uint64_t i = 0; i < kAlgorithms; ++i) {
    results[i] = {{{i + 1}}, 0, i == 1 ? kInvalidValue : lt::kSuccess, 1.0f, {}};
  }
  *found = kAlgorithms;
  return lt::kSuccess;
}

FAKE_API lt::Status cublasLtMatmul(lt::Handle, lt::Desc desc, const void* alpha, const void* a,
                                   lt::Layout a_layout, const void* b, lt::Layout b_layout,
                                   const void* beta, const void*, lt::Layout, void* d,
                                   lt::Layout d_layout, const lt::Algorithm* algorithm,
                                   void* workspace, size_t, headrace::cuda::Stream) {
  const bool usable = algorithm->data[0] == 1 || algorithm->data[0] == kAlgorithms;
  if (!usable || !desc->transpose_a || workspace == nullptr ||
      *static_cast<const float*>(alpha) != 1.0f || *static_cast<const float*>(beta) != 0.0f) {
    return kInvalidValue;
  }
  for (uint64_t col = 0; col < d_layout->cols; ++col) {
    for (uint64_t row = 0; row < d_layout->rows; ++row) {
      float sum = plays("wrong") ? 8.0f : 0.0f;
      for (uint64_t k = 0; k < a_layout->rows; ++k) {
        sum += at(a, *a_layout, k, row) * at(b, *b_layout, k, col);
      }
      const uint64_t place = col * static_cast<uint64_t>(d_layout->stride) + row;
      static_cast<uint16_t*>(d)[place] = headrace::f32_to_bf16(sum);
    }
  }
  return lt::kSuccess;
}

}  // extern "C"
