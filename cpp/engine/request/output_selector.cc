#include "headrace/output_selector.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/home_process.h"
#include "base/mutex.h"
#include "engine/request/request_state.h"
#include "engine/request/timed_wait.h"

namespace headrace {

struct OutputSelector::Shared {
  struct Entry;

  const internal::HomeProcess home;
  Mutex mutex;  // never held while a request is called
  CondVar came;
  std::unordered_map<int64_t, std::shared_ptr<Entry>> entries HEADRACE_GUARDED_BY(mutex);
  std::vector<Entry*> reported HEADRACE_GUARDED_BY(mutex);  // has room for all of `entries`
  bool woken HEADRACE_GUARDED_BY(mutex) = false;
  int ready_fd HEADRACE_GUARDED_BY(mutex) = -1;  // an eventfd, above 0 while `reported` isn't empty

  ~Shared() {
    if (ready_fd >= 0) close(ready_fd);
  }

  void report(Entry& entry) noexcept;
  void raise_fd() const noexcept HEADRACE_REQUIRES(mutex) {
    if (ready_fd >= 0) eventfd_write(ready_fd, 1);
  }
  void lower_fd() const noexcept HEADRACE_REQUIRES(mutex) {
    eventfd_t ignored = 0;
    if (ready_fd >= 0) eventfd_read(ready_fd, &ignored);
  }
};

struct OutputSelector::Shared::Entry final : internal::OutputListener {
  // Weak: the request owns the entry, too, and may outlive the selector.
  std::weak_ptr<Shared> selector;
  std::weak_ptr<internal::RequestState> request;
  int64_t tag = 0;
  bool reported = false;  // guarded by the selector's mutex, likewise `removed`
  bool removed = false;

  void notify() noexcept override {
    if (const auto shared = selector.lock()) shared->report(*this);
  }
};

void OutputSelector::Shared::report(Entry& entry) noexcept {
  {
    const MutexLock lock(mutex);
    if (entry.removed || std::exchange(entry.reported, true)) return;
    if (reported.empty()) raise_fd();
    reported.push_back(&entry);
  }
  came.notify_one();
}

OutputSelector::OutputSelector() : shared_(std::make_shared<Shared>()) {}

OutputSelector::~OutputSelector() {
  if (shared_->home.left()) {  // a thread that isn't here may hold the lock, or have begun a change
    new std::shared_ptr<Shared>(std::move(shared_));
    return;
  }
  std::unordered_map<int64_t, std::shared_ptr<Shared::Entry>> entries;
  {
    const MutexLock lock(shared_->mutex);
    entries.swap(shared_->entries);
    for (const auto& [tag, entry] : entries) entry->removed = true;
  }
  for (const auto& [tag, entry] : entries) {
    if (const auto request = entry->request.lock()) request->remove_listener(*entry);
  }
}

void OutputSelector::add(const ResultQueue& queue, int64_t tag, Until until) {
  shared_->home.check("selector");
  auto entry = std::make_shared<Shared::Entry>();
  entry->selector = shared_;
  entry->request = queue.state_;
  entry->tag = tag;
  {
    const MutexLock lock(shared_->mutex);
    if (!shared_->entries.emplace(tag, entry).second) {
      throw_error(ErrorCode::kInvalidArgument, "tag ", tag, " is in use already.");
    }
    shared_->reported.reserve(shared_->entries.size());
  }
  try {
    queue.state_->add_listener(std::move(entry), until == Until::kFinished);
  } catch (...) {
    remove(tag);
    throw;
  }
}

void OutputSelector::remove(int64_t tag) {
  shared_->home.check("selector");
  std::shared_ptr<Shared::Entry> entry;
  {
    const MutexLock lock(shared_->mutex);
    const auto found = shared_->entries.find(tag);
    if (found == shared_->entries.end()) return;
    entry = std::move(found->second);
    shared_->entries.erase(found);
    entry->removed = true;
    if (std::erase(shared_->reported, entry.get()) > 0 && shared_->reported.empty()) {
      shared_->lower_fd();
    }
  }
  if (const auto request = entry->request.lock()) request->remove_listener(*entry);
}

bool OutputSelector::wait(std::optional<std::chrono::nanoseconds> timeout) {
  shared_->home.check("selector");
  MutexLock lock(shared_->mutex);
  const auto ready = [this]() HEADRACE_REQUIRES(shared_->mutex) {
    return shared_->woken || !shared_->reported.empty();
  };
  if (!internal::wait_until_ready(shared_->came, lock, timeout, ready)) return false;
  shared_->woken = false;
  return true;
}

void OutputSelector::wake() {
  shared_->home.check("selector");
  {
    const MutexLock lock(shared_->mutex);
    shared_->woken = true;
  }
  shared_->came.notify_one();
}

std::vector<int64_t> OutputSelector::take(size_t at_most) {
  shared_->home.check("selector");
  std::vector<int64_t> tags;
  const MutexLock lock(shared_->mutex);
  auto& reported = shared_->reported;
  if (reported.empty()) return tags;
  const auto end = reported.begin() + static_cast<ptrdiff_t>(std::min(at_most, reported.size()));
  tags.reserve(static_cast<size_t>(end - reported.begin()));
  for (auto entry = reported.begin(); entry != end; ++entry) {
    (*entry)->reported = false;
    tags.push_back((*entry)->tag);
  }
  reported.erase(reported.begin(), end);
  if (reported.empty()) shared_->lower_fd();
  return tags;
}

int OutputSelector::ready_fd() {
  shared_->home.check("selector");
  const MutexLock lock(shared_->mutex);
  if (shared_->ready_fd < 0) {
    shared_->ready_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (shared_->ready_fd < 0) {
      throw_error(ErrorCode::kIo, "no file descriptor is left for a selector.");
    }
    if (!shared_->reported.empty()) shared_->raise_fd();
  }
  return shared_->ready_fd;
}

}  // namespace headrace
