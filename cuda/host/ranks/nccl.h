#pragma once

// NCCL, loaded when GPUs of one model can't reach each other's memory. Nothing of it is needed to
// build: the few functions that are used are declared here, in our own words.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "cuda/host/runtime/cuda_api.h"
#include "cuda/kernels/ranks/rank_links.h"

namespace headrace::cuda {

/// The library. It stays loaded.
class Nccl {
 public:
  using Result = int;               ///< ncclResult_t; 0: success
  using Comm = void*;               ///< ncclComm_t
  static constexpr int kBytes = 0;  ///< ncclInt8

  /// `file`: CudaBackendOptions::nccl. `cuda_major`: which package the error names. Throws
  /// Error(kUnsupported) that says where it was looked for, and what to install.
  static std::shared_ptr<const Nccl> load(const std::string& file, int cuda_major);

  /// Throws Error(kDevice) naming the call and what NCCL says, unless the result is success.
  void check(Result result, const char* call) const;

  Result (*init_all)(Comm* comms, int count, const int* devices) = nullptr;
  Result (*destroy)(Comm comm) = nullptr;
  Result (*abort)(Comm comm) = nullptr;
  Result (*async_error)(Comm comm, Result* found) = nullptr;
  Result (*all_gather)(const void* from, void* to, size_t count, int type, Comm comm,
                       Stream stream) = nullptr;

 private:
  Nccl(void* library, const std::string& file);

  const char* (*error_text_)(Result result) = nullptr;
  Result (*version_)(int* version) = nullptr;
};

/// The communicators of a model's ranks, one each. If a rank fails the others' are aborted at once,
/// and its own once nobody is within a call: NCCL frees all of them with the last one.
class NcclClique {
 public:
  /// Throws Error(kDevice). `devices`: of each rank.
  NcclClique(std::shared_ptr<const Nccl> nccl, std::span<const int> devices);
  /// Steps of all ranks have ended, and their records are gone: NCCL waits for them.
  ~NcclClique();
  NcclClique(const NcclClique&) = delete;
  NcclClique& operator=(const NcclClique&) = delete;

  /// PartsCarrier::all_gather() of one rank. Throws OtherRankFailed behind abort().
  void all_gather(int32_t rank, std::byte* memory, int64_t bytes, Stream stream);
  /// What that rank's GPU waits for ends, with results of no use. Once more does nothing. Any
  /// thread; the last rank's as for the destructor, but that steps may be under way.
  void abort(int32_t rank) noexcept;

 private:
  const std::shared_ptr<const Nccl> nccl_;
  std::vector<Nccl::Comm> comms_;
  Mutex mutex_;  // not held within a call that may wait for other ranks
  std::vector<bool> aborted_ HEADRACE_GUARDED_BY(mutex_);  // by rank
};

}  // namespace headrace::cuda
