// libnccl.so.2 as tests load it, see fake_nccl.h. It shares no code with what loads it.

#include "cuda/host/support/fake_nccl.h"

#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace {

using headrace::cuda::FakeNccl;
using headrace::cuda::Stream;

constexpr int kSuccess = 0, kUnhandledCudaError = 1, kInternalError = 3, kInvalidUsage = 5;

FakeNccl& fake() {
  static FakeNccl out;
  return out;
}

/// One exchange: who has come, and with what.
struct Exchange {
  std::vector<const void*> from;
  size_t capture = 0;  // see Comm::captured, of who came first; 0: a plain call
  size_t come = 0, gone = 0;
};

struct Clique {
  std::mutex mutex;
  std::vector<Exchange> exchanges;  // by number
  size_t count = 0, ended = 0;
  std::atomic<int> held{0};  // exchanges in queues and in records
};

struct Comm {
  Clique* clique = nullptr;
  size_t rank = 0;
  size_t number = 0;    // of its next exchange
  size_t captured = 0;  // calls that records have: the n-th of each rank belong together
  std::atomic<bool> aborted{false};
};

/// Counts the work that holds it, wherever it is kept.
struct Hold {
  explicit Hold(Clique* of) : clique(of) { ++clique->held; }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() { --clique->held; }
  Clique* clique;
};

bool wait_for(const Comm& comm, const std::function<bool()>& condition) {
  for (;;) {
    {
      const std::lock_guard lock(comm.clique->mutex);
      if (condition()) return true;
    }
    if (comm.aborted) return false;
    fake().run_all();
    std::this_thread::yield();
  }
}

void gather(Comm& comm, const void* from, void* to, size_t bytes, size_t capture) {
  Clique& clique = *comm.clique;
  const size_t number = comm.number++;
  {
    const std::lock_guard lock(clique.mutex);
    if (clique.exchanges.size() <= number) clique.exchanges.resize(number + 1);
    Exchange& own = clique.exchanges[number];
    own.from.resize(clique.count);
    own.from[comm.rank] = from;
    if (own.come == 0) own.capture = capture;
    if (own.capture != capture) fake().mixed = true;
    ++own.come;
  }
  const auto here = [&]() -> Exchange& { return clique.exchanges[number]; };
  if (!wait_for(comm, [&] { return here().come == clique.count; })) return;
  std::vector<const void*> all;
  {
    const std::lock_guard lock(clique.mutex);
    all = here().from;
  }
  for (size_t r = 0; r < all.size(); ++r) {
    char* const place = static_cast<char*>(to) + r * bytes;
    if (place != all[r]) std::memcpy(place, all[r], bytes);
  }
  {
    const std::lock_guard lock(clique.mutex);
    ++here().gone;
  }
  wait_for(comm, [&] { return here().gone == clique.count; });
}

int end(void* handle) {
  Clique* const clique = static_cast<Comm*>(handle)->clique;
  {
    const std::lock_guard lock(clique->mutex);
    if (++clique->ended < clique->count) return kSuccess;
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (clique->held != 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      fake().hung = true;
      return kInternalError;  // leaks what may still be used
    }
    fake().run_all();
    std::this_thread::yield();
  }
  fake().live_comms -= static_cast<int>(clique->count);
  return kSuccess;
}

/// Kept until the process ends: who uses one that is freed must not crash the test.
std::vector<std::unique_ptr<Clique>> cliques;
std::vector<std::unique_ptr<Comm>> comms;
std::mutex all_mutex;

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

FakeNccl* headrace_fake_nccl() { return &fake(); }

const char* ncclGetErrorString(int result) {
  return result == kInvalidUsage ? "invalid usage" : "a fake error";
}

int ncclGetVersion(int* version) {
  *version = fake().version;
  return kSuccess;
}

int ncclCommInitAll(void** out, int count, const int* devices) {
  ++fake().inits;
  if (fake().init_result != 0) return fake().init_result;
  for (int i = 0; i < count; ++i) {
    for (int j = 0; j < i; ++j) {
      if (devices[i] == devices[j]) return kInvalidUsage;
    }
  }
  const std::lock_guard lock(all_mutex);
  cliques.push_back(std::make_unique<Clique>());
  cliques.back()->count = static_cast<size_t>(count);
  for (int i = 0; i < count; ++i) {
    comms.push_back(std::make_unique<Comm>());
    comms.back()->clique = cliques.back().get();
    comms.back()->rank = static_cast<size_t>(i);
    out[i] = comms.back().get();
  }
  fake().live_comms += count;
  return kSuccess;
}

int ncclCommDestroy(void* comm) {
  ++fake().destroys;
  return end(comm);
}

int ncclCommAbort(void* comm) {
  ++fake().aborts;
  static_cast<Comm*>(comm)->aborted = true;
  return end(comm);
}

int ncclCommGetAsyncError(void*, int* found) {
  *found = fake().async_result;
  return kSuccess;
}

int ncclAllGather(const void* from, void* to, size_t count, int type, void* handle, Stream stream) {
  ++fake().gathers;
  if (type != 0) return kInvalidUsage;
  if (fake().fail_gather > 0 && --fake().fail_gather == 0) return kInternalError;
  auto* const comm = static_cast<Comm*>(handle);
  const auto hold = std::make_shared<Hold>(comm->clique);
  const size_t capture = fake().is_capturing(stream) ? ++comm->captured : 0;
  const auto work = [=] { gather(*comm, from, to, count, capture); };
  return fake().submit(stream, work) ? kSuccess : kUnhandledCudaError;
}

}  // extern "C"
#pragma GCC visibility pop
