#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace headrace {

/// What tells a file from another one, and from itself before it was written to.
struct FileStamp {
  uint64_t device = 0, inode = 0, bytes = 0;
  int64_t modified_ns = 0;  ///< since 1970
  int64_t changed_ns = 0;   ///< of the inode (st_ctim), which no program can set; likewise
  bool operator==(const FileStamp&) const = default;
};

/// Of the file by this path. Throws Error: kNotFound, kIo.
FileStamp stamp_file(const std::filesystem::path& path);

/// Waits until a write that comes later gives a file other times than this stamp has: 50 ms at
/// most, as file systems round times down to the tick of the kernel's clock.
void outwait_clock_tick(const FileStamp& stamp);

/// How a mapping will be read.
enum class MappingUse : uint8_t {
  kOnce,  ///< from front to back
  kKeep,  ///< again and again: it starts on a 2 MiB boundary and asks for huge pages
};

/// A regular file, open and mapped read-only. Thread safe after construction.
class MappedFile {
 public:
  /// Throws Error(kNotFound) or Error(kIo) naming the path.
  explicit MappedFile(const std::filesystem::path& path, MappingUse use = MappingUse::kOnce);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const noexcept { return path_; }
  uint64_t size() const noexcept { return size_; }
  /// First byte; null if the file is empty. Touching a page that the file has lost since kills the
  /// process, hence check_size().
  const char* data() const noexcept { return data_; }
  bool contains(const void* address) const noexcept;

  /// Copies a range through read(2), which cannot fault. Throws Error(kCorruptFile) at an end of
  /// file inside it. REQUIRES: offset + bytes <= size().
  void read(uint64_t offset, void* destination, size_t bytes) const;
  /// The range will be read in small pieces, in any order.
  void expect_rows(const void* address, size_t bytes) const noexcept;
  /// Lets go of the pages that hold [address, address + bytes); they stay in the file cache.
  void drop(const void* address, size_t bytes) const noexcept;
  /// Throws Error(kCorruptFile) if the file has another size than when it was opened.
  void check_size() const;
  /// check_size(); and throws Error(kInvalidState) if it was written to since it was opened, or if
  /// another file is there by its path now. A write that came before the file was opened, and less
  /// than a tick of the file system's clock before, counts as one only behind settle().
  void check_unchanged() const;
  /// Waits until a later write to the file cannot leave its times as they are: 50 ms at most.
  void settle() const;

 private:
  std::string path_;
  int descriptor_ = -1;
  FileStamp stamp_;
  uint64_t size_ = 0;
  char* data_ = nullptr;
};

/// The whole of a file of at most `max_bytes`. Throws like MappedFile, and Error(kCorruptFile) for
/// a larger one.
std::string read_small_file(const std::filesystem::path& path, uint64_t max_bytes);

}  // namespace headrace
