#pragma once

// A library with NCCL's names for the fake runtime's devices: what a test says to it, and it to the
// test. Communicators of one process are freed together, with the last one, which waits for what is
// queued and for the records that hold an exchange, as NCCL's are.

#include <atomic>
#include <functional>

#include "cuda/host/runtime/cuda_check.h"

namespace headrace::cuda {

struct FakeNccl {
  // Of the runtime; set by FakeNcclLibrary.
  std::function<bool(Stream, std::function<void()>)> submit;  ///< false: it was refused
  std::function<void()> run_all;
  std::function<bool(Stream)> is_capturing;

  std::atomic<int> version{22800};
  std::atomic<int> init_result{0};
  std::atomic<int> fail_gather{0};  ///< the nth ncclAllGather from now, of any rank; 0: none
  std::atomic<int> async_result{0};

  std::atomic<int> inits{0}, gathers{0}, aborts{0}, destroys{0};
  std::atomic<int> live_comms{0};
  std::atomic<bool> hung{false};  ///< one waited in vain for records to go
  /// An exchange was a part of a record on some ranks alone, or of records of different steps.
  std::atomic<bool> mixed{false};
};

inline constexpr const char* kFakeNcclEntry = "headrace_fake_nccl";

}  // namespace headrace::cuda
