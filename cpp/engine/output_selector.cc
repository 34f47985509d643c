#include "headrace/output_selector.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

namespace headrace {

namespace {

struct Entry {
  ResultQueue queue;
  int64_t tag;
  bool reported = false;
};

}  // namespace

struct OutputSelector::Shared {
  std::mutex mutex;  // guards what follows; never held while a queue is called
  std::condition_variable came;
  std::vector<std::shared_ptr<Entry>> entries;
  std::vector<std::shared_ptr<Entry>> reported;

  void report(const std::shared_ptr<Entry>& entry) {
    {
      const std::lock_guard lock(mutex);
      if (std::exchange(entry->reported, true)) return;
      reported.push_back(entry);
    }
    came.notify_one();
  }
};

OutputSelector::OutputSelector() : shared_(std::make_shared<Shared>()) {}

OutputSelector::~OutputSelector() {
  std::vector<std::shared_ptr<Entry>> entries;
  {
    const std::lock_guard lock(shared_->mutex);
    entries.swap(shared_->entries);
  }
  for (const auto& entry : entries) entry->queue.on_output(nullptr);
}

void OutputSelector::add(ResultQueue queue, int64_t tag) {
  auto entry = std::make_shared<Entry>(Entry{queue, tag});
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->entries.push_back(entry);
  }
  // Weak: the callback lives in the request, which the entry keeps alive.
  queue.on_output([shared = std::weak_ptr(shared_), weak = std::weak_ptr(entry)] {
    const auto selector = shared.lock();
    const auto source = weak.lock();
    if (selector && source) selector->report(source);
  });
}

void OutputSelector::remove(const ResultQueue& queue) {
  std::shared_ptr<Entry> entry;
  {
    const std::lock_guard lock(shared_->mutex);
    auto& entries = shared_->entries;
    const auto found = std::find_if(entries.begin(), entries.end(),
                                    [&](const auto& each) { return each->queue == queue; });
    if (found == entries.end()) return;
    entry = std::move(*found);
    entries.erase(found);
  }
  entry->queue.on_output(nullptr);
  const std::lock_guard lock(shared_->mutex);
  std::erase(shared_->reported, entry);
}

bool OutputSelector::wait(std::optional<std::chrono::nanoseconds> timeout) {
  std::unique_lock lock(shared_->mutex);
  const auto any = [this] { return !shared_->reported.empty(); };
  if (timeout) return shared_->came.wait_for(lock, *timeout, any);
  shared_->came.wait(lock, any);
  return true;
}

std::vector<int64_t> OutputSelector::take() {
  const std::lock_guard lock(shared_->mutex);
  std::vector<int64_t> tags;
  for (const auto& entry : shared_->reported) {
    entry->reported = false;
    tags.push_back(entry->tag);
  }
  shared_->reported.clear();
  return tags;
}

}  // namespace headrace
