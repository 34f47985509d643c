#include "interpreter_gate.h"

#include <pthread.h>
#include <unistd.h>

namespace headrace::python {

namespace {

// A forked child has one thread, which is not inside. The parent's gate may be locked there, or
// hold threads that the child does not have and would wait for at its end.
InterpreterGate*& current_gate() {
  static InterpreterGate* gate = [] {
    pthread_atfork(nullptr, nullptr, [] { current_gate() = new InterpreterGate; });
    return new InterpreterGate;
  }();
  return gate;
}

}  // namespace

InterpreterGate& InterpreterGate::instance() { return *current_gate(); }

bool InterpreterGate::enter() {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  ++inside_;
  return true;
}

void InterpreterGate::leave() {
  const std::lock_guard lock(mutex_);
  if (--inside_ <= 0) empty_.notify_all();
}

void InterpreterGate::close() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  closer_ = std::this_thread::get_id();
  // Below 0: a callback forked, and its thread left the child's gate without having entered it.
  empty_.wait(lock, [this] { return inside_ <= 0; });
}

bool InterpreterGate::closed_by_this_thread() {
  const std::lock_guard lock(mutex_);
  return closed_ && closer_ == std::this_thread::get_id();
}

GilRelease::GilRelease() {
  if (!InterpreterGate::instance().closed_by_this_thread()) saved_ = PyEval_SaveThread();
}

GilRelease::~GilRelease() {
  if (saved_ == nullptr) return;
  auto& gate = InterpreterGate::instance();
  if (gate.closed_by_this_thread()) {
    PyEval_RestoreThread(saved_);
    return;
  }
  while (!gate.enter()) pause();
  PyEval_RestoreThread(saved_);
  gate.leave();
}

void sleep_if_ending() {
  if (PyGILState_Check() == 0) return;
  const GilRelease release;
}

GilAcquire::GilAcquire() : entered_(InterpreterGate::instance().enter()) {
  if (entered_) state_ = PyGILState_Ensure();
}

GilAcquire::~GilAcquire() {
  if (!entered_) return;
  PyGILState_Release(state_);
  InterpreterGate::instance().leave();
}

}  // namespace headrace::python
