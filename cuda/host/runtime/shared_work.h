#pragma once

// Streams whose kernels may wait for other GPUs of this process. In some calls (taking memory, the
// first use of a kernel, building a record) CUDA may wait for a GPU, and keep all threads from
// launching meanwhile: also what such a kernel waits for. So what is on these streams ends first,
// whichever model's it is.

#include <memory>

#include "cuda/host/runtime/cuda_api.h"

namespace headrace::cuda {

/// One stream of them, known to all of its GPU's users while this lives.
class SharedStream {
 public:
  /// Throws nothing of CUDA's: without an event the others don't wait for it.
  SharedStream(CudaApi& api, int device, Stream stream);
  ~SharedStream();
  SharedStream(const SharedStream&) = delete;
  SharedStream& operator=(const SharedStream&) = delete;

  /// While its work is captured, nobody else may touch the stream.
  void set_capturing(bool captures);

  struct Entry;

 private:
  const std::shared_ptr<Entry> entry_;
};

/// Waits for what is on the streams of `device`, but for `own`, for a few seconds at most: they may
/// wait for each other in turn. Any thread, whose GPU this is.
void finish_others_work(CudaApi& api, int device, Stream own);

}  // namespace headrace::cuda
