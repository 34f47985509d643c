#include "model/quantized/scaled_float4.h"

#include <algorithm>

#include "base/check.h"
#include "model/checkpoint/expect_tensor.h"
#include "tensor/float4.h"

namespace headrace {

Float4Tensors packed_float4(const std::string& stem, int64_t n, int64_t k) {
  return {.codes = stem + ".weight_packed",
          .scales = stem + ".weight_scale",
          .codes_shape = {n, k / 2},
          .scales_shape = {n, k / kMxBlock}};
}

Float4Tensors blocks_float4(const std::string& name, int64_t experts, int64_t n, int64_t k) {
  return {.codes = name + "_blocks",
          .scales = name + "_scales",
          .codes_shape = {experts, n, k / kMxBlock, kMxBlock / 2},
          .scales_shape = {experts, n, k / kMxBlock}};
}

ScaledFloat4::ScaledFloat4(const Checkpoint& checkpoint, const Float4Tensors& tensors, int64_t n,
                           int64_t k)
    : k_(k) {
  if (k % kMxBlock != 0) {
    throw_error(ErrorCode::kUnsupported, "tensor ", tensors.codes, " is MXFP4, but its ", k,
                " inputs don't fall into blocks of ", kMxBlock,
                ": load the checkpoint that isn't quantized.");
  }
  codes_ = find_bytes(checkpoint, tensors.codes, tensors.codes_shape);
  scales_ = find_bytes(checkpoint, tensors.scales, tensors.scales_shape);
  const uint8_t* end = scales_ + n * (k / kMxBlock);
  const uint8_t* bad = std::find(scales_, end, uint8_t{0xff});
  if (bad == end) return;
  throw_error(ErrorCode::kCorruptFile, "tensor ", tensors.scales,
              " holds a scale that is NaN (255, its ", "number ", bad - scales_,
              "): get the file again.");
}

const uint8_t* ScaledFloat4::find_bytes(const Checkpoint& checkpoint, const std::string& name,
                                        const std::vector<int64_t>& shape) {
  const CheckpointTensor& tensor = expect_tensor(checkpoint, name, shape);
  if (tensor.dtype != DType::kU8) {
    throw_error(ErrorCode::kUnsupported, "tensor ", name, " is stored as ",
                dtype_name(tensor.dtype), ": this build reads uint8 there.");
  }
  tensors_.push_back(name);
  return static_cast<const uint8_t*>(tensor.data);
}

void ScaledFloat4::read(int64_t feature, int64_t first, int64_t count, float* out) const {
  const uint8_t* codes = codes_ + feature * (k_ / 2);
  const uint8_t* scales = scales_ + feature * (k_ / kMxBlock);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t k = first + i;
    const uint8_t pair = codes[k / 2];
    const auto code = static_cast<uint8_t>(k % 2 == 0 ? pair : pair >> 4);
    out[i] = e2m1_to_f32(code) * e8m0_to_f32(scales[k / kMxBlock]);
  }
}

}  // namespace headrace
