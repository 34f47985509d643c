#include "cuda/host/trials/trial.h"

#include <algorithm>

#include "base/check.h"

namespace headrace::cuda {

TrialMemory::TrialMemory(CudaContext& context, size_t bytes) : context_(context) {
  context.finish_others_work();
  context.check(context.api().malloc_device(&data_, bytes), "taking memory");
}

Trial::Trial(CudaContext& context, size_t input_bytes, size_t output_bytes)
    : context_(context),
      input_bytes_(input_bytes),
      output_bytes_(output_bytes),
      staging_(context, std::max(input_bytes, output_bytes)),
      inputs_(context, input_bytes),
      outputs_(context, output_bytes),
      graphs_(context) {}

void Trial::upload() {
  context_.check(context_.api().copy(inputs(), staging(), input_bytes_, CopyKind::kHostToDevice,
                                     context_.stream()),
                 "a trial");
  context_.wait();
}

void Trial::clear_outputs() {
  context_.check(context_.api().fill_zero(outputs(), output_bytes_, context_.stream()), "a trial");
}

void Trial::keep(size_t from, size_t to, size_t bytes) {
  context_.check(context_.api().copy(outputs() + to, inputs() + from, bytes,
                                     CopyKind::kDeviceToDevice, context_.stream()),
                 "a trial");
}

void Trial::download() {
  context_.check(context_.api().copy(staging(), outputs(), output_bytes_, CopyKind::kDeviceToHost,
                                     context_.stream()),
                 "a trial");
  context_.wait();
}

std::string guarded(CudaContext& context, const std::function<std::string()>& trial) {
  context.enter();
  try {
    return trial();
  } catch (const Error& error) {
    context.note_failure();
    if (context.lost()) throw;
    context.settle();
    return error.what();
  }
}

}  // namespace headrace::cuda
