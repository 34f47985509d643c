#include "model/quantized/scaled_float8.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"
#include "model/checkpoint/expect_tensor.h"
#include "tensor/dtype.h"
#include "tensor/float8.h"

namespace headrace {

namespace {

/// Of whichever of the two names there is.
const CheckpointTensor& find_scales(const Checkpoint& checkpoint, const std::string& stem) {
  for (const char* suffix : {".weight_scale_inv", ".weight_scale"}) {
    const CheckpointTensor* found = checkpoint.find(stem + suffix);
    if (found != nullptr) return *found;
  }
  throw_error(ErrorCode::kNotFound, "the checkpoint has no tensor ", stem, ".weight_scale_inv nor ",
              stem, ".weight_scale, without which ", stem, ".weight, which is FP8, means nothing.");
}

std::vector<float> to_f32(const CheckpointTensor& tensor) {
  std::vector<float> out(tensor.bytes / dtype_size(tensor.dtype));
  const auto* data = static_cast<const char*>(tensor.data);
  for (size_t i = 0; i < out.size(); ++i) {
    if (tensor.dtype == DType::kF32) {
      std::memcpy(&out[i], data + 4 * i, 4);
      continue;
    }
    uint16_t bits = 0;
    std::memcpy(&bits, data + 2 * i, 2);
    out[i] = tensor.dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
  return out;
}

}  // namespace

ScaledFloat8::ScaledFloat8(const StoredQuantization& stored, const Checkpoint& checkpoint,
                           const std::string& stem, int64_t n, int64_t k)
    : k_(k) {
  const CheckpointTensor& codes = expect_tensor(checkpoint, stem + ".weight", {n, k});
  HEADRACE_CHECK(codes.dtype == DType::kF8E4M3, codes.name);
  codes_ = static_cast<const uint8_t*>(codes.data);
  const CheckpointTensor& scales = find_scales(checkpoint, stem);
  tensors_ = {codes.name, scales.name};
  if (scales.dtype != DType::kF32 && scales.dtype != DType::kBF16 && scales.dtype != DType::kF16) {
    throw_error(ErrorCode::kUnsupported, "tensor ", scales.name, " is stored as ",
                dtype_name(scales.dtype),
                ": this build reads float32, bfloat16 and float16 there.");
  }
  read_scales(stored, scales, n, k);
}

void ScaledFloat8::read_scales(const StoredQuantization& stored, const CheckpointTensor& scales,
                               int64_t n, int64_t k) {
  if (stored.block_n > 0) {
    block_n_ = stored.block_n;
    block_k_ = stored.block_k;
    columns_ = ceil_div(k, block_k_);
    if (scales.shape != std::vector<int64_t>{ceil_div(n, block_n_), columns_}) {
      throw_error(ErrorCode::kCorruptFile, "tensor ", scales.name, " must be [",
                  ceil_div(n, block_n_), ", ", columns_, "]: a scale for each ", block_n_, " x ",
                  block_k_, " of a weight of [", n, ", ", k, "].");
    }
  } else {
    // [], [1] or [1, 1]: of the tensor; [n] or [n, 1]: of each feature.
    const auto is_one = [](int64_t side) { return side == 1; };
    const int64_t first = scales.shape.empty() ? 1 : scales.shape.front();
    const bool others =
        scales.shape.size() <= 2 &&
        std::all_of(scales.shape.begin() + !scales.shape.empty(), scales.shape.end(), is_one);
    if (!others || (first != 1 && first != n)) {
      throw_error(ErrorCode::kCorruptFile, "tensor ", scales.name,
                  " must hold one scale, or one for each of ", n, " features.");
    }
    block_n_ = first == 1 ? n : 1;
    block_k_ = k;
  }
  scales_ = to_f32(scales);
  for (const float scale : scales_) {
    if (std::isfinite(scale)) continue;
    throw_error(ErrorCode::kCorruptFile, "tensor ", scales.name,
                " holds a scale that is NaN or infinite: get the file again.");
  }
}

void ScaledFloat8::read(int64_t feature, int64_t first, int64_t count, float* out) const {
  const uint8_t* codes = codes_ + feature * k_ + first;
  const float* scales = scales_.data() + feature / block_n_ * columns_;
  for (int64_t i = 0; i < count; ++i) {
    out[i] = e4m3_to_f32(codes[i]) * scales[(first + i) / block_k_];
  }
}

}  // namespace headrace
