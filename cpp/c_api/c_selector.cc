#include <algorithm>

#include "c_api/c_error.h"
#include "c_api/c_handles.h"

using namespace headrace;
using namespace headrace::c_api;

headrace_code headrace_selector_create(headrace_selector** selector) {
  return guarded([&] {
    headrace_selector*& out = deref(selector, "selector");
    out = new headrace_selector;
  });
}

void headrace_selector_destroy(headrace_selector* selector) { delete selector; }

headrace_code headrace_selector_add(headrace_selector* selector, headrace_request* request,
                                    int64_t tag, int32_t finished_only) {
  return guarded([&] {
    deref(selector, "selector")
        .selector.add(
            deref(request, "request").queue, tag,
            finished_only != 0 ? OutputSelector::Until::kFinished : OutputSelector::Until::kOutput);
  });
}

headrace_code headrace_selector_remove(headrace_selector* selector, int64_t tag) {
  return guarded([&] { deref(selector, "selector").selector.remove(tag); });
}

headrace_code headrace_selector_wait(headrace_selector* selector, int64_t timeout, int64_t* tags,
                                     size_t capacity, size_t* count) {
  return guarded([&] {
    OutputSelector& waiting = deref(selector, "selector").selector;
    size_t& written = deref(count, "count");
    int64_t* const out = &deref(tags, "tags");
    if (capacity == 0) throw_error(ErrorCode::kInvalidArgument, "capacity is 0: nothing fits.");
    waiting.wait(to_timeout(timeout));
    const auto taken = waiting.take(capacity);
    std::copy(taken.begin(), taken.end(), out);
    written = taken.size();
  });
}

headrace_code headrace_selector_wake(headrace_selector* selector) {
  return guarded([&] { deref(selector, "selector").selector.wake(); });
}

headrace_code headrace_selector_ready_fd(headrace_selector* selector, int32_t* descriptor) {
  return guarded(
      [&] { deref(descriptor, "descriptor") = deref(selector, "selector").selector.ready_fd(); });
}
