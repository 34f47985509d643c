#pragma once

// Writes the packed file of a model that serves, beside it.

#include <cstddef>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "model/packed/packed_header.h"

namespace headrace::internal {

/// A model's weights in memory, and where they belong in the cache.
struct CacheEntry {
  struct Tensor {
    const void* data;
    size_t bytes;
  };

  std::string model;                 ///< its name, for messages
  std::filesystem::path checkpoint;  ///< folder that the weights were loaded from
  std::filesystem::path file;        ///< in the cache
  std::string family;                ///< how the names of this checkpoint's entries begin
  PackedHeader header;               ///< hashes are not yet known; source as before the load
  std::vector<Tensor> contents;      ///< of header.tensors, in host memory
};

/// One thread of the lowest priority, at most kBytesPerSecond, 5 MiB of memory. Nothing is left
/// behind unless the file is whole, on the disk, and made from what the checkpoint still is; then
/// entries of the same checkpoint that are out of date are removed. A failure is a warning in the
/// log and nothing else.
class CacheWriter {
 public:
  static constexpr double kBytesPerSecond = 512e6;

  /// `logger` outlives the writer, as do the contents.
  CacheWriter(CacheEntry entry, Logger& logger);
  /// Ends the writing, which takes as long as some MiB take to be on the disk.
  ~CacheWriter() = default;
  CacheWriter(const CacheWriter&) = delete;
  CacheWriter& operator=(const CacheWriter&) = delete;

  /// Once; later calls do nothing. One thread at a time.
  void start();

 private:
  void run(const std::stop_token& stop) noexcept;
  void write(const std::stop_token& stop);
  void remove_outdated() const;

  CacheEntry entry_;
  Logger& logger_;
  bool started_ = false;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace headrace::internal
