#include <optional>
#include <utility>

#include "c_api/c_handles.h"
#include "c_api/c_output.h"
#include "c_api/c_struct.h"

using namespace headrace;
using namespace headrace::c_api;

namespace {

headrace_request_stats to_c(const RequestStats& from, RequestStatus status) {
  headrace_request_stats out{};
  out.arrival_time = from.arrival_time;
  out.first_scheduled_time = from.first_scheduled_time;
  out.first_token_time = from.first_token_time;
  out.last_token_time = from.last_token_time;
  out.finished_time = from.finished_time;
  out.prompt_tokens = from.prompt_tokens;
  out.cached_tokens = from.cached_tokens;
  out.host_cached_tokens = from.host_cached_tokens;
  out.generated_tokens = from.generated_tokens;
  out.preemptions = from.preemptions;
  out.replica = from.replica;
  out.image_tokens = from.image_tokens;
  out.video_tokens = from.video_tokens;
  out.status = static_cast<int32_t>(status);
  return out;
}

static_assert(HEADRACE_REQUEST_FINISHED == static_cast<int>(RequestStatus::kFinished));
static_assert(HEADRACE_FINISH_INTERRUPTED == static_cast<int>(FinishReason::kInterrupted));

}  // namespace

void headrace_request_release(headrace_request* request) { delete request; }

headrace_code headrace_request_cancel(headrace_request* request) {
  return guarded([&] { deref(request, "request").request.cancel(); });
}

headrace_code headrace_request_wait(headrace_request* request, int64_t timeout, int32_t* finished) {
  return guarded([&] {
    const Request& waited = deref(request, "request").request;
    bool done = true;
    if (const auto limit = to_timeout(timeout)) {
      done = waited.wait(*limit);
    } else {
      waited.wait();
    }
    if (finished != nullptr) *finished = done;
  });
}

const char* headrace_request_id(headrace_request* request) {
  const char* id = nullptr;
  guarded([&] { id = deref(request, "request").request.id().c_str(); });
  return id;
}

headrace_code headrace_request_seed(headrace_request* request, uint64_t* seed) {
  return guarded([&] { deref(seed, "seed") = deref(request, "request").request.seed(); });
}

headrace_code headrace_request_get_stats(headrace_request* request, headrace_request_stats* stats) {
  return guarded([&] {
    const size_t size = deref(stats, "stats").struct_size;
    check_struct_size(size, "stats");
    const ResultQueue& queue = deref(request, "request").queue;
    write_struct(stats, size, to_c(queue.stats(), queue.status()));
  });
}

headrace_code headrace_request_get(headrace_request* request, int64_t timeout,
                                   headrace_output** output) {
  return guarded([&] {
    headrace_output*& out = deref(output, "output");
    ResultQueue& queue = deref(request, "request").queue;
    const auto limit = to_timeout(timeout);
    std::optional<Output> came = limit ? queue.get(*limit) : queue.get();
    out = came ? new OwnedOutput(*std::move(came)) : nullptr;
  });
}

void headrace_output_release(headrace_output* output) { delete static_cast<OwnedOutput*>(output); }

headrace_code headrace_request_on_output(headrace_request* request, headrace_output_fn callback,
                                         void* user_data) {
  return guarded([&] {
    ResultQueue& queue = deref(request, "request").queue;
    if (callback == nullptr) {
      queue.on_output(nullptr);
    } else {
      queue.on_output([callback, user_data] { callback(user_data); });
    }
  });
}
