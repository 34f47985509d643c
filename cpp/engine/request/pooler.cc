#include "engine/request/pooler.h"

#include <cmath>
#include <utility>

#include "base/check.h"

namespace headrace::internal {

Pooler::Pooler(PoolingParams params, int32_t prompt_len)
    : params_(std::move(params)), prompt_len_(prompt_len) {}

bool Pooler::wants(int32_t position) const noexcept {
  if (position < next_ || position >= prompt_len_) return false;
  switch (params_.pooling) {
    case Pooling::kLast:
      return position == prompt_len_ - 1;
    case Pooling::kMean:
      return true;
    case Pooling::kCls:
      return position == 0;
  }
  return false;
}

void Pooler::note(size_t i, double value) {
  finite_ = finite_ && std::isfinite(value);
  sums_[i] += value;
}

void Pooler::add(int32_t position, std::span<const float> row) {
  HEADRACE_CHECK(wants(position), position);
  next_ = position + 1;
  const std::vector<int32_t>& ids = params_.logit_token_ids;
  sums_.resize(wants_logits() ? ids.size() : row.size());
  for (size_t i = 0; i < sums_.size(); ++i) {
    note(i, row[wants_logits() ? static_cast<size_t>(ids[i]) : i]);
  }
}

double Pooler::divisor() const noexcept {
  return params_.pooling == Pooling::kMean && !replaced_ ? prompt_len_ : 1;
}

std::vector<float> Pooler::pooled_row() const {
  std::vector<float> out;
  out.reserve(sums_.size());
  for (const double sum : sums_) out.push_back(static_cast<float>(sum / divisor()));
  return out;
}

void Pooler::replace(std::span<const float> values) {
  HEADRACE_CHECK(wants_head() && !replaced_);
  replaced_ = true;
  sums_.assign(values.size(), 0.0);
  for (size_t i = 0; i < values.size(); ++i) note(i, values[i]);
}

std::vector<float> Pooler::take() const {
  HEADRACE_CHECK(!sums_.empty() && std::cmp_less_equal(params_.dimensions, sums_.size()),
                 params_.dimensions);
  const size_t size =
      params_.dimensions > 0 ? static_cast<size_t>(params_.dimensions) : sums_.size();
  const auto values = std::span(sums_).first(size);
  double by = divisor();
  if (params_.normalize) {
    double squares = 0;
    for (const double value : values) squares += value * value;
    if (squares > 0) by = std::sqrt(squares);
  }
  std::vector<float> out;
  out.reserve(size);
  for (const double value : values) out.push_back(static_cast<float>(value / by));
  return out;
}

}  // namespace headrace::internal
