#include "model/packed/atomic_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/check.h"

namespace headrace {

namespace {

// Whole writes of this size, at multiples of it, let a file system cache the file in huge pages.
constexpr size_t kBuffer = size_t{4} << 20;

std::filesystem::path temporary_name(const std::filesystem::path& path) {
  static std::atomic<uint32_t> count{0};
  return path.parent_path() / str_cat(".", path.filename().string(), ".", ::getpid(), "-", ++count);
}

/// Its name may be another file's.
bool is_removed(int descriptor) noexcept {
  struct stat status{};
  return ::fstat(descriptor, &status) == 0 && status.st_nlink == 0;
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path, uint32_t mode)
    : path_(path),
      temporary_(temporary_name(path)),
      buffer_(std::make_unique_for_overwrite<char[]>(kBuffer)) {
  create(mode);
}

// While the lock is held, the file is no leftover. Who removes leftovers may have come before the
// lock: then it is made again.
void AtomicFile::create(uint32_t mode) {
  do {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (descriptor_ < 0) fail("create", errno);
    while (::flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {
    }
  } while (is_removed(descriptor_));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::append(const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const size_t count = std::min(bytes, kBuffer - buffered_);
    std::memcpy(buffer_.get() + buffered_, from, count);
    buffered_ += count;
    from += count;
    bytes -= count;
    if (buffered_ == kBuffer) flush();
  }
}

void AtomicFile::append_zeros(size_t bytes) {
  constexpr char kZeros[256] = {};
  for (; bytes > 0; bytes -= std::min(bytes, sizeof kZeros)) {
    append(kZeros, std::min(bytes, sizeof kZeros));
  }
}

void AtomicFile::overwrite(uint64_t offset, const void* data, size_t bytes) {
  HEADRACE_CHECK(offset <= size() && bytes <= size() - offset);
  flush();
  write_at(offset, static_cast<const char*>(data), bytes);
}

void AtomicFile::sync() {
  if (::fdatasync(descriptor_) != 0) fail("write", errno);
}

void AtomicFile::commit() {
  flush();
  if (::fsync(descriptor_) != 0) fail("write", errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("put in place", errno);
  ::close(descriptor_);
  descriptor_ = -1;
  // The name is on the disk once the folder is.
  const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  const int directory = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  ::fsync(directory);
  ::close(directory);
}

void AtomicFile::flush() {
  write_at(written_, buffer_.get(), buffered_);
  written_ += buffered_;
  buffered_ = 0;
}

void AtomicFile::write_at(uint64_t offset, const char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t count = ::pwrite(descriptor_, data, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("write", errno);
    data += count;
    offset += static_cast<uint64_t>(count);
    bytes -= static_cast<size_t>(count);
  }
}

void AtomicFile::fail(const char* action, int error) const {
  throw_error(ErrorCode::kIo, "cannot ", action, " ", path_.string(), ": ",
              std::generic_category().message(error), ".");
}

bool remove_dead_files(const std::filesystem::path& folder, const std::string& prefix) noexcept {
  bool is_written = false;
  try {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (!entry.path().filename().string().starts_with("." + prefix)) continue;
      const int descriptor =
          ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
      if (descriptor < 0) continue;
      if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
        if (!is_removed(descriptor)) ::unlink(entry.path().c_str());
      } else {
        is_written = true;
      }
      ::close(descriptor);
    }
  } catch (const std::exception&) {  // a folder that can't be read has nothing to remove
  }
  return is_written;
}

}  // namespace headrace
