#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/check.h"

namespace headrace {

namespace {

std::string reason(int error) { return std::generic_category().message(error); }

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path.string()) {
  // O_NONBLOCK: opening a FIFO must fail below instead of waiting for a writer.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) {
    throw_error(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot open ", path_,
                ": ", reason(errno), ".");
  }
  struct stat status{};
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    throw_error(ErrorCode::kIo, path_, " is not a regular file.");
  }
  size_ = static_cast<uint64_t>(status.st_size);
  if (size_ == 0) return;
  void* mapping = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor_, 0);
  if (mapping == MAP_FAILED) {
    const int error = errno;
    ::close(descriptor_);
    throw_error(ErrorCode::kIo, "cannot map ", path_, " (", size_, " bytes): ", reason(error), ".");
  }
  data_ = static_cast<char*>(mapping);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
  ::close(descriptor_);
}

bool MappedFile::contains(const void* address) const noexcept {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const auto first = reinterpret_cast<uintptr_t>(data_);
  return at >= first && at < first + size_;
}

void MappedFile::read(uint64_t offset, void* destination, size_t bytes) const {
  auto* out = static_cast<char*>(destination);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor_, out, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_error(ErrorCode::kIo, "cannot read ", path_, ": ", reason(errno), ".");
    if (got == 0) {
      throw_error(ErrorCode::kCorruptFile, path_, " ends at byte ", offset,
                  ": it has shrunk since it was opened.");
    }
    out += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
}

void MappedFile::drop(const void* address, size_t bytes) const noexcept {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<uintptr_t>(address);
  const uintptr_t first = at / page * page;
  ::madvise(reinterpret_cast<void*>(first), at + bytes - first, MADV_DONTNEED);
}

void MappedFile::check_size() const {
  struct stat status{};
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (!known || static_cast<uint64_t>(status.st_size) != size_) {
    throw_error(ErrorCode::kCorruptFile, path_, " had ", size_,
                " bytes when it was opened and has ", status.st_size,
                " now: do not change a checkpoint while it is being loaded.");
  }
}

}  // namespace headrace
