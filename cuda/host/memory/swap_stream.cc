#include "cuda/host/memory/swap_stream.h"

#include <algorithm>

namespace headrace::cuda {

SwapStream::SwapStream(CudaContext& context) : context_(context), copied_(context) {
  for (EventHandle& end : ends_) end = EventHandle(context);
  context.check(context.api().create_stream(&stream_), "making a stream");
}

SwapStream::~SwapStream() {
  static_cast<void>(context_.api().set_device(context_.device()));
  static_cast<void>(context_.api().synchronize(stream_));
  static_cast<void>(context_.api().destroy_stream(stream_));
}

void SwapStream::begin_step() {
  if (step_ > 0) end_of(step_).record(context_.stream());
  ++step_;
}

void SwapStream::note_use(int32_t index, bool is_state) {
  std::vector<uint64_t>& uses = last_use_[is_state ? 1 : 0];
  const auto at = static_cast<size_t>(index);
  if (at >= uses.size()) uses.resize(at + 1, 0);
  uses[at] = step_;
}

Stream SwapStream::begin_copies(std::span<const BlockCopy> copies) {
  uint64_t last = 0;
  for (const BlockCopy& copy : copies) {
    const std::vector<uint64_t>& uses = last_use_[copy.is_state ? 1 : 0];
    const auto index = static_cast<size_t>(copy.block);
    if (index < uses.size()) last = std::max(last, uses[index]);
  }
  if (last == 0) return stream_;
  if (last == step_) end_of(step_).record(context_.stream());  // nothing more is queued of it
  // The end of a step too long ago was that of a later one since.
  end_of(last).hold_up(stream_);
  return stream_;
}

void SwapStream::end_copies() {
  copied_.record(stream_);
  copied_.hold_up(context_.stream());
}

}  // namespace headrace::cuda
