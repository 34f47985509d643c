#include "backend/cpu/ops/sample_vocabulary.h"

#include <algorithm>
#include <limits>

#include "base/checked_math.h"

namespace headrace {

VocabularyPasses::VocabularyPasses(const SampleKernels& kernels, ThreadPool* pool,
                                   int32_t vocab_size)
    : kernels_(kernels), pool_(pool), size_(vocab_size) {
  constexpr int32_t kMinChunk = 8192;
  chunk_ = std::max(kMinChunk, round_up(ceil_div(size_, kMaxChunks), 1024));
  chunks_ = ceil_div(size_, chunk_);
}

template <class Body>
void VocabularyPasses::for_chunks(const Body& body) const {
  const auto run = [&](int64_t begin, int64_t end, int32_t) {
    for (int64_t c = begin; c < end; ++c) {
      const int64_t first = c * chunk_;
      body(static_cast<size_t>(c), first, std::min<int64_t>(chunk_, size_ - first));
    }
  };
  if (pool_ == nullptr) {
    run(0, chunks_, 0);
  } else {
    pool_->parallel_for(chunks_, 1, run);
  }
}

template <class Pass>
float VocabularyPasses::maximum_of(const Pass& pass) const {
  std::array<float, kMaxChunks> maxima;
  for_chunks([&](size_t c, int64_t first, int64_t n) { maxima[c] = pass(first, n); });
  return *std::max_element(maxima.begin(), maxima.begin() + chunks_);
}

PreparedLogits VocabularyPasses::prepare(const float* x, const uint32_t* allowed,
                                         float* out) const {
  std::array<float, kMaxChunks> raw_maxima;
  const float max = maximum_of([&](int64_t first, int64_t n) {
    const uint32_t* words = allowed == nullptr ? nullptr : allowed + first / 32;
    const PreparedLogits part = kernels_.prepare(x + first, n, words, out + first);
    raw_maxima[static_cast<size_t>(first / chunk_)] = part.raw_max;
    return part.max;
  });
  return {max, *std::max_element(raw_maxima.begin(), raw_maxima.begin() + chunks_)};
}

float VocabularyPasses::divide(float* x, float divisor) const {
  return maximum_of(
      [&](int64_t first, int64_t n) { return kernels_.divide(x + first, n, divisor); });
}

float VocabularyPasses::maximum(const float* x) const {
  return maximum_of([&](int64_t first, int64_t n) { return kernels_.maximum(x + first, n); });
}

double VocabularyPasses::exp_sum(const float* x, float max) const {
  std::array<double, kMaxChunks> sums;
  for_chunks(
      [&](size_t c, int64_t first, int64_t n) { sums[c] = kernels_.exp_sum(x + first, n, max); });
  double sum = 0.0;
  for (int32_t c = 0; c < chunks_; ++c) sum += sums[static_cast<size_t>(c)];
  return sum;
}

int64_t VocabularyPasses::count_greater(const float* x, float value) const {
  std::array<int64_t, kMaxChunks> counts;
  for_chunks([&](size_t c, int64_t first, int64_t n) {
    counts[c] = kernels_.count_greater(x + first, n, value);
  });
  int64_t count = 0;
  for (int32_t c = 0; c < chunks_; ++c) count += counts[static_cast<size_t>(c)];
  return count;
}

int64_t VocabularyPasses::find_at_least(const float* x, float value) const {
  for (int64_t first = 0; first < size_; first += chunk_) {
    const int64_t n = std::min<int64_t>(chunk_, size_ - first);
    const int64_t found = kernels_.find_at_least(x + first, n, value);
    if (found < n) return first + found;
  }
  return size_;
}

std::span<Candidate> VocabularyPasses::collect(const float* x, float threshold, float max,
                                               Candidate* out) const {
  std::array<int64_t, kMaxChunks> counts;
  for_chunks([&](size_t c, int64_t first, int64_t n) {
    counts[c] =
        kernels_.collect(x + first, n, threshold, max, static_cast<int32_t>(first), out + first);
  });
  Candidate* end = out;
  for (int32_t c = 0; c < chunks_; ++c) {
    Candidate* from = out + static_cast<int64_t>(c) * chunk_;
    end = std::copy(from, from + counts[static_cast<size_t>(c)], end);
  }
  return {out, end};
}

}  // namespace headrace
