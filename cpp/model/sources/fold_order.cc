#include "model/sources/fold_order.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"

namespace headrace {

namespace {

using Codes = std::shared_ptr<const CheckpointCodes>;

/// What a checkpoint holds, seen in another way.
class OtherView : public CheckpointCodes {
 public:
  explicit OtherView(Codes whole) : whole_(std::move(whole)) {}

  const std::vector<std::string>& tensors() const noexcept override { return whole_->tensors(); }
  const std::string& scales() const noexcept override { return whole_->scales(); }

 protected:
  const CheckpointCodes& whole() const noexcept { return *whole_; }

 private:
  Codes whole_;
};

/// Feature i is feature order[i] of the stored ones.
class OrderedFeatures final : public OtherView {
 public:
  OrderedFeatures(Codes whole, Codes ordered)
      : OtherView(std::move(whole)), ordered_(std::move(ordered)) {}

  const QuantFormat& format() const noexcept override { return whole().format(); }
  const std::vector<int32_t>& order() const noexcept override { return whole().order(); }
  void read(int64_t first, int64_t count, int64_t group, QuantizedGroup* out) const override {
    for (int64_t i = 0; i < count; ++i) {
      whole().read(ordered_->order()[static_cast<size_t>(first + i)], 1, group, out + i);
    }
  }

 private:
  const Codes ordered_;  // whose inputs the features are
};

/// Whose inputs come in its order already.
class OrderedInputs final : public OtherView {
 public:
  explicit OrderedInputs(Codes whole)
      : OtherView(std::move(whole)), format_(this->whole().format()) {
    format_.reordered = false;
  }

  const QuantFormat& format() const noexcept override { return format_; }
  const std::vector<int32_t>& order() const noexcept override { return none_; }
  void read(int64_t first, int64_t count, int64_t group, QuantizedGroup* out) const override {
    whole().read(first, count, group, out);
  }

 private:
  QuantFormat format_;
  const std::vector<int32_t> none_;
};

}  // namespace

void fold_order(MatrixSource& gate_up, MatrixSource& down) {
  if (!down.quant.reordered) return;
  const auto experts = static_cast<size_t>(down.experts);
  const size_t each = gate_up.parts.size() / experts;
  HEADRACE_CHECK(down.parts.size() == experts, down.parts.size(), " of ", experts);
  for (size_t i = 0; i < gate_up.parts.size(); ++i) {
    StoredPart& part = gate_up.parts[i];
    if (part.codes == nullptr || part.n != down.k) {
      throw_error(ErrorCode::kUnsupported, "tensor ", down.parts[i / each].codes->scales(),
                  " of an expert is quantized in an order of its own (act-order), but ", part.name,
                  " isn't stored as a matrix of codes: quantize both, or take a checkpoint that "
                  "was quantized without it.");
    }
    part.codes = std::make_shared<OrderedFeatures>(part.codes, down.parts[i / each].codes);
  }
  for (StoredPart& part : down.parts) part.codes = std::make_shared<OrderedInputs>(part.codes);
  down.quant.reordered = false;
}

}  // namespace headrace
