#include "model/scratch.h"

#include <algorithm>

#include "base/checked_math.h"

namespace headrace {

namespace {

constexpr size_t kAlignment = 256;

/// Hands out matrices one behind the other.
class Carver {
 public:
  explicit Carver(void* base) : base_(static_cast<char*>(base)) {}

  TensorView matrix(int64_t rows, int64_t cols, DType dtype) {
    void* data = base_ == nullptr ? nullptr : base_ + offset_;
    const size_t bytes = static_cast<size_t>(rows * cols) * dtype_size(dtype);
    offset_ += round_up(bytes, kAlignment);
    return TensorView(data, dtype, {rows, cols});
  }

  size_t offset() const noexcept { return offset_; }
  void move_to(size_t offset) noexcept { offset_ = offset; }

 private:
  char* base_;
  size_t offset_ = 0;
};

}  // namespace

Scratch lay_out_scratch(const ModelConfig& config, const DecoderOptions& options, DType activation,
                        void* base, size_t* bytes) {
  const int64_t t = options.max_rows, s = options.max_logit_rows;
  const int64_t lora_rows = options.max_loras > 0 ? t : 0;
  const int64_t hidden = config.hidden_size;
  const int64_t q = int64_t{config.num_heads} * config.head_dim;
  const int64_t kv = int64_t{config.num_kv_heads} * config.head_dim;
  Carver carver(base);
  Scratch out;
  out.residual = carver.matrix(t, hidden, activation);
  out.normed = carver.matrix(t, hidden, activation);
  out.delta = carver.matrix(t, hidden, activation);
  out.rope = carver.matrix(t, config.rope.rotary_dim, DType::kF32);
  out.chosen_residual = carver.matrix(s, hidden, activation);
  out.chosen_mixed = carver.matrix(s, q, activation);
  out.logits = carver.matrix(s, config.vocab_size, DType::kF32);
  out.mixed = carver.matrix(t, q, activation);
  // q, k and v: no linear has more parts.
  out.lora = carver.matrix(lora_rows, 3 * round_up<int64_t>(options.max_lora_rank, kLoraRankUnit),
                           DType::kF32);

  // Attention is over when the feed-forward block begins.
  const size_t shared = carver.offset();
  out.qkv = carver.matrix(t, q + 2 * kv, activation);
  const size_t attention_end = carver.offset();
  carver.move_to(shared);
  out.gated = carver.matrix(t, config.intermediate_size, activation);
  out.gate_up = carver.matrix(lora_rows, 2 * int64_t{config.intermediate_size}, activation);
  *bytes = std::max(attention_end, carver.offset());
  return out;
}

}  // namespace headrace
