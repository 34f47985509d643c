#include "text/files/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "headrace/status.h"
#include "text/unicode/utf8.h"

namespace headrace::text {
namespace {

constexpr size_t kMaxMessage = 600;

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const noexcept { return value_; }

 private:
  int value_;
};

[[noreturn]] void fail_io(const std::string& path, int error) {
  throw_error(ErrorCode::kIo, path, " can't be read: ", std::generic_category().message(error));
}

const char* kind_name(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISCHR(mode) || S_ISBLK(mode) ? "a device" : "something else";
}

[[noreturn]] void fail_size(const std::string& path, size_t size, size_t limit) {
  throw_error(ErrorCode::kLimitExceeded, path, " has ", size, " bytes, more than the ", limit,
              " allowed");
}

/// What is there of at most `capacity` bytes.
size_t read_all(const std::string& path, int descriptor, char* data, size_t capacity) {
  size_t size = 0;
  while (size < capacity) {
    const ssize_t got = ::read(descriptor, data + size, capacity - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_io(path, errno);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  return size;
}

}  // namespace

bool is_there(const std::string& path) noexcept {
  struct stat status{};
  return ::lstat(path.c_str(), &status) == 0;
}

std::optional<FileBytes> read_file(const std::string& path, size_t limit) {
  // Without O_NONBLOCK a pipe waits here for somebody to write to it.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (file.get() < 0) {
    if (errno != ENOENT && errno != ENOTDIR) fail_io(path, errno);
    if (!is_there(path)) return std::nullopt;
    throw_error(ErrorCode::kCorruptFile, path, " is a link to a file that isn't there");
  }
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) fail_io(path, errno);
  if (!S_ISREG(status.st_mode)) {
    throw_error(ErrorCode::kCorruptFile, path, " must be a file, but is ",
                kind_name(status.st_mode));
  }
  const auto expected = static_cast<size_t>(status.st_size);
  if (expected > limit) fail_size(path, expected, limit);
  const size_t capacity = expected + 1;  // one more: it may have grown
  std::unique_ptr<char[]> data(new char[capacity]);
  const size_t size = read_all(path, file.get(), data.get(), capacity);
  if (size > limit) fail_size(path, size, limit);
  return FileBytes(std::move(data), size);
}

json::Value read_json_file(const std::string& path) {
  const std::optional<FileBytes> file = read_file(path, kMaxSideFileBytes);
  if (!file) return json::Value(json::Value::Object());
  json::Value value;
  naming_file(path, [&] { value = json::parse(file->view()); });
  if (value.object() == nullptr) {
    constexpr std::array kKinds = {"null", "a bool", "a number", "a number", "a string", "a list"};
    throw_error(ErrorCode::kCorruptFile, path, " must hold a JSON object, not ",
                kKinds[static_cast<size_t>(value.kind())]);
  }
  return value;
}

void naming_file(const std::string& path, const std::function<void()>& call) {
  try {
    call();
  } catch (const InternalError&) {
    throw;
  } catch (const Error& error) {
    throw Error(error.code(), path + ": " + shortened(error.what(), kMaxMessage));
  }
}

}  // namespace headrace::text
