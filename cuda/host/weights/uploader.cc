#include "cuda/host/weights/uploader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <system_error>
#include <thread>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/first_failure.h"

namespace headrace::cuda {

namespace {

constexpr size_t kPieceBytes = size_t{4} << 20;

}  // namespace

/// One write(), shared by its threads.
struct Uploader::Task {
  std::byte* device;
  int64_t units, piece_units, pieces;
  size_t unit_bytes;
  const Fill& fill;
  Stream stream = nullptr;
  std::atomic<int64_t> next{0};
  FirstFailure failure;
};

Uploader::Uploader(CudaContext& context, int32_t threads, EventHandle* behind)
    : context_(context), threads_(static_cast<size_t>(std::max(threads, 1))), behind_(behind) {}

Uploader::~Uploader() {
  if (stream_ == nullptr) return;
  // The pinned memory goes only when no copy reads it any more; if that fails, none does.
  static_cast<void>(context_.api().set_device(context_.device()));
  static_cast<void>(context_.api().synchronize(stream_));
  static_cast<void>(context_.api().destroy_stream(stream_));
}

void Uploader::prepare(size_t lanes, size_t bytes) {
  if (stream_ == nullptr) {
    context_.check(context_.api().create_stream(&stream_), "making a stream");
  }
  for (size_t i = 0; i < lanes; ++i) {
    if (i == lanes_.size()) lanes_.push_back({{}, EventHandle(context_)});
    if (lanes_[i].memory.bytes() >= bytes) continue;
    lanes_[i].copied.wait();
    lanes_[i].memory = {};
    lanes_[i].memory = PinnedBuffer(context_, std::max(bytes, kPieceBytes));
  }
}

void Uploader::work(Lane& lane, Task& task) {
  try {
    context_.enter();
    for (int64_t piece; (piece = task.next.fetch_add(1)) < task.pieces;) {
      const int64_t first = piece * task.piece_units;
      const int64_t count = std::min(task.piece_units, task.units - first);
      lane.copied.wait();
      task.fill(first, count, lane.memory.data());
      context_.check(
          context_.api().copy(task.device + static_cast<size_t>(first) * task.unit_bytes,
                              lane.memory.data(), static_cast<size_t>(count) * task.unit_bytes,
                              CopyKind::kHostToDevice, task.stream),
          "copying weights");
      lane.copied.record(task.stream);
    }
  } catch (...) {
    task.next.store(task.pieces);
    task.failure.keep();
  }
}

void Uploader::write(void* device, int64_t units, size_t unit_bytes, const Fill& fill) {
  if (units <= 0 || unit_bytes == 0) return;
  const MutexLock lock(mutex_);
  context_.enter();
  const auto piece_units = static_cast<int64_t>(std::max<size_t>(1, kPieceBytes / unit_bytes));
  Task task{.device = static_cast<std::byte*>(device),
            .units = units,
            .piece_units = piece_units,
            .pieces = ceil_div(units, piece_units),
            .unit_bytes = unit_bytes,
            .fill = fill};
  const size_t lanes = std::min(threads_, static_cast<size_t>(task.pieces));
  prepare(lanes, static_cast<size_t>(piece_units) * unit_bytes);
  task.stream = stream_;
  if (behind_ != nullptr) behind_->hold_up(stream_);
  pending_ = true;
  {
    std::vector<std::jthread> helpers;  // joined however this block is left
    try {
      for (size_t i = 1; i < lanes; ++i) {
        helpers.emplace_back([this, &lane = lanes_[i], &task] { work(lane, task); });
      }
    } catch (const std::system_error&) {  // no more threads: those there are do all of it
    }
    work(lanes_[0], task);
  }
  if (const auto failure = task.failure.take()) {
    // The caller gives the device memory back: no piece may still be on its way there.
    static_cast<void>(context_.api().synchronize(stream_));
    std::rethrow_exception(failure);
  }
}

void Uploader::write(void* device, const void* source, size_t bytes) {
  const auto* from = static_cast<const std::byte*>(source);
  write(device, static_cast<int64_t>(bytes), 1,
        [from](int64_t first, int64_t count, std::byte* to) {
          std::memcpy(to, from + first, static_cast<size_t>(count));
        });
}

void Uploader::flush() {
  const MutexLock lock(mutex_);
  if (!pending_) return;
  context_.enter();
  context_.check(context_.api().synchronize(stream_), "copying weights");
  pending_ = false;
}

void Uploader::release() {
  flush();
  const MutexLock lock(mutex_);
  if (!pending_) lanes_.clear();
}

}  // namespace headrace::cuda
