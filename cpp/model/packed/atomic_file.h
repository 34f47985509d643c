#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace headrace {

/// Writes a file that appears under its name whole or not at all: into a temporary file in the same
/// folder, which commit() puts in place, also over an older file. Whoever has the older one open
/// or mapped keeps it. Errors are Error(kIo) naming the path. One thread at a time.
class AtomicFile {
 public:
  /// `mode`: who may read and write it, as far as the process's umask lets them.
  explicit AtomicFile(const std::filesystem::path& path, uint32_t mode = 0666);
  /// Removes the temporary file unless it was committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void append(const void* data, size_t bytes);
  void append_zeros(size_t bytes);
  /// Overwrites what was appended before. REQUIRES: offset + bytes <= size().
  void overwrite(uint64_t offset, const void* data, size_t bytes);
  /// Returns when all but the last few MiB appended are on the disk.
  void sync();
  uint64_t size() const noexcept { return written_ + buffered_; }
  /// Returns when the file is on the disk under its name. No other call may follow.
  void commit();

 private:
  void create(uint32_t mode);
  void flush();
  void write_at(uint64_t offset, const char* data, size_t bytes);
  [[noreturn]] void fail(const char* action, int error) const;

  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
  uint64_t written_ = 0;
  size_t buffered_ = 0;
  std::unique_ptr<char[]> buffer_;
};

/// Removes what killed processes left of files in `folder` whose names begin with `prefix`. Returns
/// whether an AtomicFile, of this process or another, writes such a file now. Never throws.
bool remove_dead_files(const std::filesystem::path& folder, const std::string& prefix) noexcept;

}  // namespace headrace
