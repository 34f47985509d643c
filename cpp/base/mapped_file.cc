#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <system_error>
#include <thread>

#include "base/check.h"
#include "base/checked_math.h"

namespace headrace {

namespace {

// At most 10 ms on every kernel.
constexpr std::chrono::milliseconds kClockTick{50};

std::string reason(int error) { return std::generic_category().message(error); }

int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

FileStamp stamp_of(const struct stat& status) {
  return {.device = static_cast<uint64_t>(status.st_dev),
          .inode = static_cast<uint64_t>(status.st_ino),
          .bytes = static_cast<uint64_t>(status.st_size),
          .modified_ns = nanoseconds(status.st_mtim),
          .changed_ns = nanoseconds(status.st_ctim)};
}

void* map_plain(int descriptor, size_t bytes) {
  return ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
}

/// Puts the file on a huge page's boundary inside a range that is reserved first. Where its cached
/// pages are large, one entry of the page table then maps 2 MiB of it.
void* map_aligned(int descriptor, size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const auto padded = checked_add(bytes, kHugePage + page);
  if (!padded) return MAP_FAILED;
  const size_t size = round_up(bytes, page);
  const size_t reserved = size + kHugePage;
  void* const base =
      ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return MAP_FAILED;
  char* const first = static_cast<char*>(base);
  const size_t head = (kHugePage - reinterpret_cast<uintptr_t>(base) % kHugePage) % kHugePage;
  void* const mapping =
      ::mmap(first + head, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, descriptor, 0);
  if (mapping == MAP_FAILED) {
    const int error = errno;
    ::munmap(base, reserved);
    errno = error;
    return MAP_FAILED;
  }
  if (head > 0) ::munmap(base, head);
  ::munmap(first + head + size, reserved - head - size);
  ::madvise(mapping, bytes, MADV_HUGEPAGE);  // a hint: failure costs only speed
  return mapping;
}

}  // namespace

FileStamp stamp_file(const std::filesystem::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) {
    throw_error(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot read ",
                path.string(), ": ", reason(errno), ".");
  }
  return stamp_of(status);
}

void outwait_clock_tick(const FileStamp& stamp) {
  using std::chrono::nanoseconds;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto age = std::chrono::duration_cast<nanoseconds>(now) - nanoseconds(stamp.changed_ns);
  if (age >= nanoseconds(0) && age < kClockTick) std::this_thread::sleep_for(kClockTick - age);
}

MappedFile::MappedFile(const std::filesystem::path& path, MappingUse use) : path_(path.string()) {
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
  stamp_ = stamp_of(status);
  size_ = stamp_.bytes;
  if (size_ == 0) return;
  void* mapping =
      use == MappingUse::kKeep ? map_aligned(descriptor_, size_) : map_plain(descriptor_, size_);
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

void MappedFile::expect_rows(const void* address, size_t bytes) const noexcept {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<uintptr_t>(address);
  const uintptr_t first = at / page * page;
  ::madvise(reinterpret_cast<void*>(first), at + bytes - first, MADV_RANDOM);
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
                " now: do not change a model's files while they are in use.");
  }
}

void MappedFile::check_unchanged() const {
  check_size();
  struct stat open{}, there{};
  const bool same = ::fstat(descriptor_, &open) == 0 && stamp_of(open) == stamp_ &&
                    ::stat(path_.c_str(), &there) == 0 && stamp_of(there) == stamp_;
  if (same) return;
  throw_error(ErrorCode::kInvalidState, path_,
              " changed while it was being loaded: load it again when nothing writes to it.");
}

void MappedFile::settle() const { outwait_clock_tick(stamp_); }

std::string read_small_file(const std::filesystem::path& path, uint64_t max_bytes) {
  const MappedFile file(path);
  if (file.size() > max_bytes) {
    throw_error(ErrorCode::kCorruptFile, file.path(), " has ", file.size(), " bytes; at most ",
                max_bytes, " are accepted.");
  }
  std::string text(file.size(), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

}  // namespace headrace
