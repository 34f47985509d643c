#pragma once

// cuBLASLt as the yardstick of our matrix products. It is loaded at run time, and only here.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/cuda/kernels/cublaslt_api.h"

namespace headrace::bench {

class CublasLt {
 public:
  /// `path`: the library's, or "" for what the dynamic linker finds as libcublasLt.so.13 or .12.
  /// Throws std::runtime_error saying why it can't be used.
  explicit CublasLt(const std::string& path);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  /// "cuBLASLt 13.1.0".
  const std::string& name() const { return name_; }

  /// out [rows, n] = x [rows, k] . weight [n, k]^T: bfloat16, row-major without gaps, float32 sums.
  /// `float8`: x and weight are FP8 e4m3, with scales of 1. `fast_sums`: the tensor cores' short
  /// sums may go through all of k. `float32_out`: out is float32.
  struct Problem {
    int64_t rows = 0, n = 0, k = 0;
    void* workspace = nullptr;
    size_t workspace_bytes = 0;
    bool float8 = false, fast_sums = false, float32_out = false;
  };
  class Product {
   public:
    Product(const CublasLt& library, const Problem& problem);
    ~Product();
    Product(const Product&) = delete;
    Product& operator=(const Product&) = delete;
    /// What the library's heuristic offers, its favourite first; 0: it can't do this problem.
    size_t num_algorithms() const { return heuristics_.size(); }
    void run(size_t algorithm, const void* x, const void* weight, void* out,
             cuda::Stream stream) const;

   private:
    const CublasLt& library_;
    Problem problem_;
    lt::Desc desc_ = nullptr;
    lt::Layout a_ = nullptr, b_ = nullptr, d_ = nullptr;
    std::vector<lt::Heuristic> heuristics_;
  };

 private:
  struct Calls;
  void load_calls();

  void* library_ = nullptr;
  std::unique_ptr<Calls> calls_;
  lt::Handle handle_ = nullptr;
  std::string name_;
};

}  // namespace headrace::bench
