#include "cuda/host/step/step_trace.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"

namespace headrace::cuda {

std::string StepTrace::Op::text(size_t number) const {
  return str_cat("op ", number, " (", name, ")");
}

void StepTrace::expect(const StepTrace& now) const {
  const size_t common = std::min(ops_.size(), now.ops_.size());
  for (size_t i = 0; i < common; ++i) {
    const Op &was = ops_[i], &is = now.ops_[i];
    HEADRACE_CHECK(std::string_view(was.name) == is.name, "a recorded step's ", was.text(i),
                   " would now be ", is.name);
    HEADRACE_CHECK(was.words == is.words, "a recorded step's ", was.text(i),
                   " would now have other arguments");
  }
  HEADRACE_CHECK(ops_.size() <= common, "a recorded step's ", ops_[common].text(common),
                 " would now be missing");
  HEADRACE_CHECK(now.ops_.size() <= common,
                 "a recorded step would now have one more: ", now.ops_[common].text(common));
}

}  // namespace headrace::cuda
