#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "model/packed/atomic_file.h"
#include "model/packed/packed_header.h"

namespace headrace {

/// Copies bytes of a tensor to host memory. What it throws ends the writing.
using TensorCopy = std::function<void(const void* from, void* to, size_t bytes)>;

/// Writes a packed file, tensor by tensor, in pieces of at most 1 MiB. Throws what the file and the
/// copy throw.
class PackedWriter {
 public:
  /// `file` is empty, and outlives the writer. `header` lists its tensors, not yet hashed.
  PackedWriter(AtomicFile& file, PackedHeader header, TensorCopy copy);

  /// The next tensor of the header, of as many bytes as it says, from where `copy` takes it.
  void append(const void* data, size_t bytes);
  /// Behind the last tensor.
  void finish();

 private:
  AtomicFile& file_;
  PackedHeader header_;
  TensorCopy copy_;
  size_t header_bytes_;
  size_t next_ = 0;  // of header_.tensors
  std::unique_ptr<std::byte[]> piece_;
};

}  // namespace headrace
