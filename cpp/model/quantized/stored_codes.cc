#include "model/quantized/stored_codes.h"

#include <algorithm>
#include <cstring>

namespace headrace {

namespace {

// Where each of eight features lies in a word of AWQ.
constexpr int kAwqPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};

// Of four int8, which become codes.
constexpr uint32_t kFlipSigns = 0x80808080u;

uint32_t load_word(const std::byte* at, int64_t bytes = 4) {
  uint32_t word = 0;
  if (bytes >= 4) {
    std::memcpy(&word, at, 4);
  } else {
    std::memcpy(&word, at, static_cast<size_t>(bytes));
  }
  return word;
}

template <class T>
T load_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// Of a word of `bits` each, number `i`.
uint32_t pick(uint32_t word, int32_t bits, int64_t i, bool awq_order) {
  const int64_t place = awq_order ? kAwqPlace[i] : i;
  return word >> (place * bits) & ((1u << bits) - 1);
}

/// Eight codes of 4 bits as eight bytes.
uint64_t spread(uint32_t word) {
  uint64_t wide = word;
  wide = (wide | wide << 16) & 0x0000ffff0000ffffu;
  wide = (wide | wide << 8) & 0x00ff00ff00ff00ffu;
  return (wide | wide << 4) & 0x0f0f0f0f0f0f0f0fu;
}

}  // namespace

int32_t StoredLayer::code(int64_t feature, int64_t input) const noexcept {
  const int64_t per_word = 32 / bits;
  const int64_t along = codes.by_feature ? feature : input;
  const int64_t line = codes.by_feature ? input : feature;
  const int64_t offset = along / per_word * codes.word_stride;
  const int64_t bytes = codes.line_bytes == 0 ? 4 : codes.line_bytes - offset;
  const uint32_t word = load_word(codes.data + line * codes.line_stride + offset, bytes) ^
                        (codes.is_signed ? kFlipSigns : 0);
  return static_cast<int32_t>(pick(word, bits, along % per_word, codes.awq_order));
}

int32_t StoredLayer::zero(int64_t feature, int64_t group) const noexcept {
  if (zeros.data == nullptr) return quant_zero(bits);
  const std::byte* at = zeros.data + group * zeros.group_stride;
  if (zeros.bytes) {
    return load_as<int8_t>(at + feature * zeros.word_stride) + zeros.added;
  }
  const int64_t per_word = 32 / bits;
  const uint32_t word = load_word(at + feature / per_word * zeros.word_stride);
  return static_cast<int32_t>(pick(word, bits, feature % per_word, zeros.awq_order)) + zeros.added;
}

float StoredLayer::scale(int64_t feature, int64_t group) const noexcept {
  const std::byte* at = scales.data + feature * scales.feature_stride + group * scales.group_stride;
  if (scales.dtype == DType::kF32) return load_as<float>(at);
  const auto half = load_as<uint16_t>(at);
  return scales.dtype == DType::kF16 ? f16_to_f32(half) : bf16_to_f32(half);
}

void StoredCodes::read(int64_t first, int64_t count, int64_t group, QuantizedGroup* out) const {
  first += first_;
  const int64_t input = group * format_.group_size;
  const int64_t inputs = std::min<int64_t>(format_.group_size, layer_.k - input);
  const int64_t stored_group = input / layer_.group_size;
  for (int64_t i = 0; i < count; ++i) {
    const float scale = layer_.scale(first + i, stored_group);
    out[i].scale = format_.f16_scales ? f32_to_f16(scale) : f32_to_bf16(scale);
    out[i].wide_scale = scale;
    out[i].zero = static_cast<uint8_t>(layer_.zero(first + i, stored_group));
    const uint8_t most = format_.bits == 8 ? 255 : 15;
    std::memset(out[i].codes, std::min(out[i].zero, most), sizeof out[i].codes);
  }
  if (!layer_.codes.by_feature && layer_.order.empty()) {
    return read_lines(first, count, input, inputs, out);
  }
  for (int64_t j = 0; j < inputs; ++j) {
    const int64_t from = layer_.order.empty() ? input + j : layer_.order[size_t(input + j)];
    if (layer_.codes.by_feature) {
      read_features(first, count, from, j, out);
    } else {
      read_input(first, count, from, j, out);
    }
  }
}

/// Words that hold inputs of one feature, word by word.
void StoredCodes::read_lines(int64_t first, int64_t count, int64_t input, int64_t inputs,
                             QuantizedGroup* out) const {
  const CodeWords& codes = layer_.codes;
  const int64_t per_word = 32 / format_.bits;
  const uint32_t flip = codes.is_signed ? kFlipSigns : 0;
  for (int64_t j = 0; j < inputs; j += per_word) {
    const int64_t word_offset = (input + j) / per_word * codes.word_stride;
    const int64_t left = std::min(per_word, inputs - j);
    const std::byte* at = codes.data + word_offset + first * codes.line_stride;
    for (int64_t i = 0; i < count; ++i, at += codes.line_stride) {
      const uint32_t word =
          load_word(at, codes.line_bytes == 0 ? 4 : codes.line_bytes - word_offset) ^ flip;
      const uint64_t wide = format_.bits == 4 ? spread(word) : word;
      std::memcpy(out[i].codes + j, &wide, static_cast<size_t>(left));
    }
  }
}

/// One input, whose features share words.
void StoredCodes::read_features(int64_t first, int64_t count, int64_t input, int64_t to,
                                QuantizedGroup* out) const {
  const CodeWords& codes = layer_.codes;
  const int64_t per_word = 32 / format_.bits;
  const std::byte* line = codes.data + input * codes.line_stride;
  for (int64_t i = 0; i < count;) {
    int64_t place = (first + i) % per_word;
    const uint32_t word = load_word(line + (first + i) / per_word * codes.word_stride);
    for (; place < per_word && i < count; ++place, ++i) {
      out[i].codes[to] = static_cast<uint8_t>(pick(word, format_.bits, place, codes.awq_order));
    }
  }
}

/// One input, of which each feature has a word with its neighbours.
void StoredCodes::read_input(int64_t first, int64_t count, int64_t input, int64_t to,
                             QuantizedGroup* out) const {
  const CodeWords& codes = layer_.codes;
  const int64_t per_word = 32 / format_.bits;
  const int64_t word_offset = input / per_word * codes.word_stride;
  const int64_t bytes = codes.line_bytes == 0 ? 4 : codes.line_bytes - word_offset;
  const uint32_t flip = codes.is_signed ? kFlipSigns : 0;
  const std::byte* at = codes.data + word_offset + first * codes.line_stride;
  for (int64_t i = 0; i < count; ++i, at += codes.line_stride) {
    const uint32_t word = load_word(at, bytes) ^ flip;
    out[i].codes[to] = static_cast<uint8_t>(pick(word, format_.bits, input % per_word, false));
  }
}

}  // namespace headrace
