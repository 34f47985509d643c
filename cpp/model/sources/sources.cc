#include "model/sources/sources.h"

namespace headrace {

namespace {

int64_t total(const std::vector<StoredPart>& parts) {
  int64_t n = 0;
  for (const StoredPart& part : parts) n += part.n;
  return n;
}

int64_t total(const std::vector<SourceRange>& ranges) {
  int64_t n = 0;
  for (const SourceRange& range : ranges) n += range.count;
  return n;
}

}  // namespace

int64_t MatrixSource::n() const noexcept {
  return slice == nullptr ? total(parts) / experts : total(slice->rows);
}

int64_t VectorSource::n() const noexcept { return ranges.empty() ? total(parts) : total(ranges); }

int64_t adapter_parts(const MatrixSource& source) noexcept {
  int64_t out = 0;
  const StoredPart* before = nullptr;
  for (const StoredPart& part : source.parts) {
    if (before == nullptr || before->name != part.name) ++out;
    before = &part;
  }
  return out;
}

WeightShape MatrixSource::weight_shape(DType storage) const {
  return {.n = n(),
          .k = k,
          .storage = kept_as(storage),
          .use = use,
          .quant = quant,
          .experts = experts};
}

}  // namespace headrace
