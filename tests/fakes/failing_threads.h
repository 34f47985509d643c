#pragma once

// Replaces pthread_create for a test program: the system can be made to refuse threads. Include it
// in one source of the program.

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>

namespace {
std::atomic<int> threads_left{-1};  // before one is refused; -1: none is
}

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  // Clang's sanitizers are part of the program, under a name of their own; they must see each
  // thread.
  static void* const sanitizers = dlsym(RTLD_DEFAULT, "__interceptor_pthread_create");
  static const auto create = reinterpret_cast<Create>(
      sanitizers != nullptr ? sanitizers : dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left == 0) {
    threads_left = -1;
    return EAGAIN;
  }
  if (threads_left > 0) --threads_left;
  return create(thread, attributes, start, argument);
}
