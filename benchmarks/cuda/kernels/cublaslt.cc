#include "benchmarks/cuda/kernels/cublaslt.h"

#include <dlfcn.h>

#include <stdexcept>

namespace headrace::bench {

namespace {

constexpr int kMostAlgorithms = 8;

void require(lt::Status status, const char* what) {
  if (status == lt::kSuccess) return;
  throw std::runtime_error(std::string("cuBLASLt: ") + what + " failed with status " +
                           std::to_string(status));
}

void* open_library(const std::string& path) {
  if (!path.empty()) return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
  }
  return nullptr;
}

}  // namespace

struct CublasLt::Calls {
  lt::Create* create;
  lt::Destroy* destroy;
  lt::GetVersion* version;
  lt::DescCreate* desc_create;
  lt::DescDestroy* desc_destroy;
  lt::DescSet* desc_set;
  lt::LayoutCreate* layout_create;
  lt::LayoutDestroy* layout_destroy;
  lt::PreferenceCreate* preference_create;
  lt::PreferenceDestroy* preference_destroy;
  lt::PreferenceSet* preference_set;
  lt::GetHeuristics* heuristics;
  lt::Matmul* matmul;
};

void CublasLt::load_calls() {
  const auto find = [this](auto*& call, const char* symbol) {
    void* const found = dlsym(library_, symbol);
    if (found == nullptr) throw std::runtime_error(std::string("cuBLASLt has no ") + symbol);
    call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(found);
  };
  find(calls_->create, "cublasLtCreate");
  find(calls_->destroy, "cublasLtDestroy");
  find(calls_->version, "cublasLtGetVersion");
  find(calls_->desc_create, "cublasLtMatmulDescCreate");
  find(calls_->desc_destroy, "cublasLtMatmulDescDestroy");
  find(calls_->desc_set, "cublasLtMatmulDescSetAttribute");
  find(calls_->layout_create, "cublasLtMatrixLayoutCreate");
  find(calls_->layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(calls_->preference_create, "cublasLtMatmulPreferenceCreate");
  find(calls_->preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(calls_->preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(calls_->heuristics, "cublasLtMatmulAlgoGetHeuristic");
  find(calls_->matmul, "cublasLtMatmul");
}

// The library itself stays: its threads and its driver context may outlive a dlclose().
CublasLt::CublasLt(const std::string& path)
    : library_(open_library(path)), calls_(std::make_unique<Calls>()) {
  if (library_ == nullptr) throw std::runtime_error(dlerror());
  load_calls();
  require(calls_->create(&handle_), "cublasLtCreate");
  const size_t version = calls_->version();
  name_ = "cuBLASLt " + std::to_string(version / 10000) + "." +
          std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
}

CublasLt::~CublasLt() { calls_->destroy(handle_); }

// The library's matrices are column-major: out^T [n, rows] = weight [k, n]^T . x^T [k, rows].
CublasLt::Product::Product(const CublasLt& library, const Problem& problem)
    : library_(library), problem_(problem) {
  const Calls& calls = *library.calls_;
  const auto n = static_cast<uint64_t>(problem.n), k = static_cast<uint64_t>(problem.k);
  const auto rows = static_cast<uint64_t>(problem.rows);
  require(calls.desc_create(&desc_, lt::kComputeF32, lt::kF32), "a description");
  require(calls.desc_set(desc_, lt::kDescTransA, &lt::kTransposed, sizeof lt::kTransposed),
          "a transposition");
  if (problem.fast_sums) {
    const int8_t fast = 1;
    require(calls.desc_set(desc_, lt::kDescFastSums, &fast, sizeof fast), "fast sums");
  }
  const int type = problem.float8 ? lt::kFloat8 : lt::kBf16;
  require(calls.layout_create(&a_, type, k, n, problem.k), "a layout");
  require(calls.layout_create(&b_, type, k, rows, problem.k), "a layout");
  const int out_type = problem.float32_out ? lt::kF32 : lt::kBf16;
  require(calls.layout_create(&d_, out_type, n, rows, problem.n), "a layout");
  lt::Preference preference = nullptr;
  require(calls.preference_create(&preference), "a preference");
  calls.preference_set(preference, lt::kPreferenceWorkspaceBytes, &problem.workspace_bytes,
                       sizeof problem.workspace_bytes);
  heuristics_.resize(kMostAlgorithms);
  int found = 0;
  const lt::Status status = calls.heuristics(library.handle_, desc_, a_, b_, d_, d_, preference,
                                             kMostAlgorithms, heuristics_.data(), &found);
  calls.preference_destroy(preference);
  heuristics_.resize(status == lt::kSuccess ? static_cast<size_t>(found) : 0);
  std::erase_if(heuristics_, [](const lt::Heuristic& h) { return h.state != lt::kSuccess; });
}

CublasLt::Product::~Product() {
  const Calls& calls = *library_.calls_;
  for (lt::Layout layout : {a_, b_, d_}) calls.layout_destroy(layout);
  calls.desc_destroy(desc_);
}

void CublasLt::Product::run(size_t algorithm, const void* x, const void* weight, void* out,
                            cuda::Stream stream) const {
  const float one = 1.0f, zero = 0.0f;
  require(library_.calls_->matmul(library_.handle_, desc_, &one, weight, a_, x, b_, &zero, out, d_,
                                  out, d_, &heuristics_.at(algorithm).algorithm, problem_.workspace,
                                  problem_.workspace_bytes, stream),
          "cublasLtMatmul");
}

}  // namespace headrace::bench
