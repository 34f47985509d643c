#include "model/sources/source_checker.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "model/checkpoint/expect_tensor.h"
#include "model/json/json.h"

namespace headrace {

namespace {

/// Compares the sources with what a checkpoint holds.
class SourceChecker {
 public:
  SourceChecker(const Checkpoint& checkpoint, const MtpTensors& mtp)
      : checkpoint_(checkpoint), mtp_(mtp) {}

  void expect(const std::string& name, const std::vector<int64_t>& shape) {
    const DType dtype = expect_tensor(checkpoint_, name, shape).dtype;
    if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16 &&
        dtype != DType::kF64) {
      throw_error(ErrorCode::kUnsupported, "tensor ", name, " is stored as ", dtype_name(dtype),
                  ": this build loads float32, bfloat16, float16 and float64 weights.");
    }
    expected_.insert(name);
  }

  /// Tensors that were checked when they were found.
  void accept(const std::vector<std::string>& names) {
    expected_.insert(names.begin(), names.end());
  }

  void refuse_others(const std::vector<std::string>& ignored, bool tied) const {
    constexpr size_t kShownNames = 3;
    std::string names;
    size_t count = 0;
    for (const CheckpointTensor& tensor : checkpoint_.tensors()) {
      const auto begins = [&](const std::string& prefix) {
        return tensor.name.starts_with(prefix);
      };
      if (expected_.contains(tensor.name) || is_ignored(tensor.name, tied) ||
          std::ranges::any_of(ignored, begins)) {
        continue;
      }
      if (++count <= kShownNames) names += (count > 1 ? ", " : "") + in_quotes(tensor.name);
    }
    if (count == 0) return;
    throw_error(ErrorCode::kUnsupported, "the checkpoint has ", count,
                " tensors that this model has no place for: ", names,
                count > kShownNames ? ", ..." : "", ".");
  }

 private:
  bool is_ignored(std::string_view name, bool tied) const {
    if (name.ends_with("rotary_emb.inv_freq")) return true;     // recomputed from the config
    if (tied && name.ends_with("lm_head.weight")) return true;  // a copy of the embedding
    return mtp_.has(name);                                      // not part of the model proper
  }

  const Checkpoint& checkpoint_;
  const MtpTensors& mtp_;
  std::set<std::string, std::less<>> expected_;
};

}  // namespace

void check_sources(const ModelSources& sources, const Checkpoint& checkpoint,
                   const MtpTensors& mtp) {
  SourceChecker checker(checkpoint, mtp);
  for (const MatrixSource* source : sources.matrices()) {
    for (const StoredPart& part : source->parts) {
      if (part.codes != nullptr) {
        checker.accept(part.codes->tensors());
        continue;
      }
      if (part.numbers != nullptr) {
        checker.accept(part.numbers->tensors());
        continue;
      }
      checker.expect(part.name, !part.shape.empty()  ? part.shape
                                : source->transposed ? std::vector<int64_t>{source->k, part.n}
                                                     : std::vector<int64_t>{part.n, source->k});
    }
  }
  for (const VectorSource* source : sources.vectors()) {
    for (const StoredPart& part : source->parts) {
      checker.expect(part.name, part.shape.empty() ? std::vector<int64_t>{part.n} : part.shape);
    }
  }
  checker.refuse_others(sources.ignored, sources.head.empty());
}

}  // namespace headrace
