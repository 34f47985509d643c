#pragma once

// The GIL, taken and given up in a way that survives the end of the interpreter.
//
// A thread that asks for the GIL once the interpreter is being torn down is killed inside C++
// frames, which ends the process with an error. So every thread of ours passes this gate first.
// An atexit handler closes it, and waits for those inside, while the interpreter is still whole.

#include <Python.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace headrace::python {

class InterpreterGate {
 public:
  /// The process has one interpreter and thus one gate; it is never destroyed, because threads may
  /// outlive main().
  static InterpreterGate& instance();

  /// False: closed; the caller must not touch Python any more. Calls nest.
  bool enter();
  void leave();
  /// Called once, by the finalizing thread without the GIL; returns when nobody is inside.
  void close();
  /// The thread that closed the gate keeps the GIL from then on.
  bool closed_by_this_thread();

 private:
  std::mutex mutex_;
  std::condition_variable empty_;
  int inside_ = 0;
  bool closed_ = false;
  std::thread::id closer_;
};

/// Gives up the GIL for its lifetime. REQUIRES: the thread holds it. If the interpreter is gone
/// at the end, the thread (a daemon thread of Python) sleeps until the process ends.
class GilRelease {
 public:
  GilRelease();
  ~GilRelease();
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* saved_ = nullptr;
};

/// A daemon thread that finds the interpreter ending sleeps until the process does: what it would
/// raise now, nobody could handle. For threads with the GIL and without.
void sleep_if_ending();

/// Holds the GIL for its lifetime, from any thread, whether or not it holds it already. False:
/// the interpreter is gone.
class GilAcquire {
 public:
  GilAcquire();
  ~GilAcquire();
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;
  explicit operator bool() const noexcept { return entered_; }

 private:
  bool entered_;
  PyGILState_STATE state_{};
};

}  // namespace headrace::python
