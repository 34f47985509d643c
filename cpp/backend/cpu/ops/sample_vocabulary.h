#pragma once

// Passes over one row of logits, cut into chunks whose bounds depend on its length alone and whose
// results are combined in order: the same bits on any number of threads.

#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "backend/cpu/kernels_sample.h"
#include "backend/cpu/threads/thread_pool.h"

namespace headrace {

/// The logit of a token that is never drawn.
inline constexpr float kNever = -std::numeric_limits<float>::infinity();

/// See SampleKernels for what the passes do. Values are [size()].
class VocabularyPasses {
 public:
  /// `pool`: null to run on the calling thread. Both references outlive this.
  VocabularyPasses(const SampleKernels& kernels, ThreadPool* pool, int32_t vocab_size);

  int32_t size() const noexcept { return size_; }

  PreparedLogits prepare(const float* x, const uint32_t* allowed, float* out) const;
  float divide(float* x, float divisor) const;
  float maximum(const float* x) const;
  double exp_sum(const float* x, float max) const;
  int64_t count_greater(const float* x, float value) const;
  int64_t find_at_least(const float* x, float value) const;
  /// `out` has room for size() candidates. Returns those found, tokens ascending.
  std::span<Candidate> collect(const float* x, float threshold, float max, Candidate* out) const;

 private:
  static constexpr int32_t kMaxChunks = 64;

  /// Calls body(chunk, first, n) for every chunk.
  template <class Body>
  void for_chunks(const Body& body) const;
  template <class Pass>
  float maximum_of(const Pass& pass) const;

  const SampleKernels& kernels_;
  ThreadPool* pool_;
  int32_t size_;
  int32_t chunk_;   ///< tokens per chunk, a multiple of 1024
  int32_t chunks_;  ///< <= kMaxChunks
};

}  // namespace headrace
