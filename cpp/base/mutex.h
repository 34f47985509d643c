#pragma once

// A mutex, its lock and a condition variable, over the standard library's. Clang checks the
// annotations (-Wthread-safety): data that a mutex guards may only be touched while it is held. For
// other compilers the annotations are empty.
//
// Clang checks no constructors and destructors. It reads a lambda as a function of its own: a
// lambda that runs under a lock says so, `[this]() HEADRACE_REQUIRES(mutex_) { ... }`.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#if defined(__clang__)
#define HEADRACE_THREAD_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define HEADRACE_THREAD_ATTRIBUTE(attribute)
#endif

/// Of a member: it is touched only while the mutex is held.
#define HEADRACE_GUARDED_BY(mutex) HEADRACE_THREAD_ATTRIBUTE(guarded_by(mutex))
/// Of a function: its caller holds the mutex, before and after.
#define HEADRACE_REQUIRES(mutex) HEADRACE_THREAD_ATTRIBUTE(requires_capability(mutex))
/// Of a function: it takes the mutex, or gives it back. Without an argument: this object's.
#define HEADRACE_ACQUIRE(...) HEADRACE_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define HEADRACE_RELEASE(...) HEADRACE_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
/// Of a function that Clang can't follow. A comment says why it is right.
#define HEADRACE_NO_THREAD_SAFETY_ANALYSIS HEADRACE_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace headrace {

class HEADRACE_THREAD_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() HEADRACE_ACQUIRE() { mutex_.lock(); }
  void unlock() HEADRACE_RELEASE() { mutex_.unlock(); }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

/// Holds a mutex for its lifetime, but between unlock() and lock().
class HEADRACE_THREAD_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) HEADRACE_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() HEADRACE_RELEASE() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() HEADRACE_RELEASE() { lock_.unlock(); }
  void lock() HEADRACE_ACQUIRE() { lock_.lock(); }

 private:
  friend class CondVar;
  std::unique_lock<std::mutex> lock_;
};

/// The lock is given back while a call waits, and held again when it returns.
class CondVar {
 public:
  void notify_one() noexcept { signal_.notify_one(); }
  void notify_all() noexcept { signal_.notify_all(); }

  /// Until notified, or for no reason: in a loop that asks for what is waited for.
  void wait(MutexLock& lock) { signal_.wait(lock.lock_); }
  template <class Ready>
  void wait(MutexLock& lock, Ready ready) {
    signal_.wait(lock.lock_, std::move(ready));
  }
  /// false: `timeout` passed first.
  template <class Rep, class Period, class Ready>
  bool wait_for(MutexLock& lock, const std::chrono::duration<Rep, Period>& timeout, Ready ready) {
    return signal_.wait_for(lock.lock_, timeout, std::move(ready));
  }

 private:
  std::condition_variable signal_;
};

}  // namespace headrace
