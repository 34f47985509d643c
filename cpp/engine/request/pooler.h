#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headrace/pooling_params.h"

namespace headrace::internal {

/// Makes a request's embedding, or its logits, of the rows of its prompt as steps compute them. The
/// bits depend on the rows alone: sums are in double and in the order of positions, whatever the
/// steps held.
class Pooler {
 public:
  /// REQUIRES: valid params, prompt_len >= 1.
  Pooler(PoolingParams params, int32_t prompt_len);

  bool wants_logits() const noexcept { return !params_.logit_token_ids.empty(); }
  /// Whether the row at `position` is to be added. Rows computed again after a preemption are not.
  bool wants(int32_t position) const noexcept;
  /// The row that wants() named, in the order of positions: after the final norm [H], or its logits
  /// [V] if wants_logits().
  void add(int32_t position, std::span<const float> row);
  /// Whether all that was added is neither NaN nor infinite.
  bool finite() const noexcept { return finite_; }
  /// The result, once the rows of the whole prompt are computed.
  std::vector<float> take() const;

 private:
  void note(size_t i, double value);

  const PoolingParams params_;
  const int32_t prompt_len_;
  int32_t next_ = 0;  ///< behind the last row added
  bool finite_ = true;
  std::vector<double> sums_;
};

}  // namespace headrace::internal
