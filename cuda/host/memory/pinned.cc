#include "cuda/host/memory/pinned.h"

#include "base/check.h"
#include "base/checked_math.h"

namespace headrace::cuda {

PinnedBuffer pin_for_swaps(CudaContext& context, int32_t count, size_t each) {
  const auto bytes = checked_mul(static_cast<uint64_t>(count), each);
  HEADRACE_CHECK(count > 0 && bytes.has_value(), count);
  try {
    return {context, *bytes};
  } catch (const Error& error) {
    if (context.lost()) throw;
    throw_error(ErrorCode::kOutOfMemory, "the system refused ", *bytes >> 20,
                " MiB of page-locked memory for swap_space (", error.what(),
                "): lower swap_space, or raise the limit of locked memory.");
  }
}

}  // namespace headrace::cuda
