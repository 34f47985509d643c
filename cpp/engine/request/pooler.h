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
  /// Whether what was pooled goes through the model's layers behind pooling.
  bool wants_head() const noexcept { return params_.use_head; }
  /// The row [H] for them, once the rows of the whole prompt are computed.
  std::vector<float> pooled_row() const;
  /// What they have made of it.
  void replace(std::span<const float> values);
  /// StepBatch::token_types of the row at `position`.
  int32_t token_type(int32_t position) const noexcept {
    return params_.second_text_at > 0 && position >= params_.second_text_at ? 1 : 0;
  }
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
  double divisor() const noexcept;

  const PoolingParams params_;
  const int32_t prompt_len_;
  int32_t next_ = 0;  ///< behind the last row added
  bool finite_ = true, replaced_ = false;
  std::vector<double> sums_;
};

}  // namespace headrace::internal
