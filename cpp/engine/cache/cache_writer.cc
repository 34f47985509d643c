#include "engine/cache/cache_writer.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"
#include "base/thread_time.h"
#include "engine/cache/cache_folder.h"
#include "model/packed/packed_file.h"
#include "model/packed/packed_writer.h"

namespace headrace::internal {

namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

// What waits to be written when the model is closed is no more than this.
constexpr size_t kSyncBytes = size_t{32} << 20;

/// No failure.
struct NotNow {
  const char* why;
};

/// Lets bytes pass at kBytesPerSecond; throws NotNow when asked to stop.
class Pace {
 public:
  explicit Pace(std::stop_token stop) : stop_(std::move(stop)) {}

  void pass(size_t bytes) {
    due_ = std::max(due_, steady_clock::now());
    MutexLock lock(mutex_);
    changed_.wait_until(lock, stop_, due_, [] { return false; });
    if (stop_.stop_requested()) throw NotNow{"the model is being closed"};
    due_ += std::chrono::duration_cast<steady_clock::duration>(
        std::chrono::duration<double>(static_cast<double>(bytes) / CacheWriter::kBytesPerSecond));
  }

 private:
  const std::stop_token stop_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  steady_clock::time_point due_{};
};

/// Nothing that the program does with signals reaches this thread; a limit on file sizes is an
/// error of the write that exceeds it.
void become_background_thread() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(this_thread_id()), 19);
}

void check_space(const fs::path& folder, const PackedHeader& header) {
  uint64_t needed = 0;
  for (const PackedTensor& tensor : header.tensors) needed += tensor.padded_bytes();
  struct statvfs disk{};
  if (::statvfs(folder.c_str(), &disk) != 0) return;
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (free > needed) return;
  throw_error(ErrorCode::kIo, "it needs ", needed >> 20, " MiB, and ", free >> 20,
              " MiB are free in ", folder.string(),
              ": free some, or set HEADRACE_CACHE to a folder elsewhere.");
}

}  // namespace

CacheWriter::CacheWriter(CacheEntry entry, Logger& logger)
    : entry_(std::move(entry)), logger_(logger) {}

void CacheWriter::start() {
  if (std::exchange(started_, true)) return;
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  } catch (const std::system_error& error) {
    logger_.log(LogLevel::kWarning, "model '", entry_.model,
                "': no thread to write its weights to the cache: ", error.what());
  }
}

// A thread of low priority that holds a log sink's locks would hold up all who wait for them: this
// one waits for it, and logs.
void CacheWriter::run(const std::stop_token& stop) noexcept try {
  const auto begin = steady_clock::now();
  try {
    std::exception_ptr failure;
    std::thread([&] {
      become_background_thread();
      try {
        write(stop);
      } catch (...) {
        failure = std::current_exception();
      }
    }).join();
    if (failure) std::rethrow_exception(failure);
    const std::chrono::duration<double> seconds = steady_clock::now() - begin;
    logger_.log(LogLevel::kInfo, "model '", entry_.model, "': its weights are in the cache now, ",
                entry_.file.string(), ", written in ", seconds.count(), " s");
  } catch (const NotNow& reason) {
    logger_.log(LogLevel::kInfo, "model '", entry_.model,
                "': this start leaves its weights out of the cache: ", reason.why);
  } catch (const std::exception& error) {
    logger_.log(LogLevel::kWarning, "model '", entry_.model,
                "': its weights are not in the cache: ", error.what());
  }
} catch (...) {  // no memory to say it
}

void CacheWriter::write(const std::stop_token& stop) {
  const fs::path folder = entry_.file.parent_path();
  make_cache_folder(folder);
  if (const std::string why = distrust(folder); !why.empty()) {
    throw_error(ErrorCode::kInvalidState, folder.string(), " ", why,
                ": set HEADRACE_CACHE to another folder.");
  }
  remove_dead_files(folder, entry_.family);
  if (remove_dead_files(folder, entry_.file.filename().string())) {
    throw NotNow{"another one is writing them"};
  }
  check_space(folder, entry_.header);

  Pace pace(stop);
  PackedHeader header = entry_.header;
  hash_source(header.source, entry_.checkpoint, 1, [&pace](size_t bytes) { pace.pass(bytes); });
  AtomicFile file(entry_.file, 0600);
  size_t unsynced = 0;
  PackedWriter writer(file, std::move(header), [&](const void* from, void* to, size_t bytes) {
    pace.pass(bytes);
    std::memcpy(to, from, bytes);
    unsynced += bytes;
    if (unsynced >= kSyncBytes) {
      file.sync();
      unsynced = 0;
    }
  });
  for (const CacheEntry::Tensor& tensor : entry_.contents) writer.append(tensor.data, tensor.bytes);
  writer.finish();
  check_source_unmoved(entry_.header.source, entry_.checkpoint);
  file.commit();
  remove_outdated();
}

/// Of other dtypes, say, entries stay as long as they were made from the same files.
void CacheWriter::remove_outdated() const {
  std::error_code ignored;
  for (const auto& other : fs::directory_iterator(entry_.file.parent_path(), ignored)) {
    const fs::path& path = other.path();
    if (path == entry_.file || !path.filename().string().starts_with(entry_.family)) continue;
    bool is_current = false;
    try {
      const PackedHeader header = PackedFile(path).header();
      is_current = header.written_by == entry_.header.written_by &&
                   same_source_times(header.source, entry_.header.source);
    } catch (const Error&) {  // not even a packed file of this version
    }
    if (!is_current) fs::remove(path, ignored);
  }
}

}  // namespace headrace::internal
