#include "cuda/host/weights/quant_tile_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "backend/cpu/cpu_isa.h"
#include "backend/host/rounded_codes.h"
#include "backend/host/weight_source.h"
#include "base/check.h"
#include "base/checked_math.h"

namespace headrace::cuda {

namespace {

/// Rounds weights as the CPU backend does, which gives the same bits on every ISA.
const QuantKernels& rounding() {
  static const QuantKernels& kernels = *select_cpu_isa("").quant;
  return kernels;
}

/// The codes of a step of 16 k and of its rows r and r + 8, a lane's eight side by side.
void put_int4(const uint8_t* low, const uint8_t* high, std::byte* out) {
  for (int q = 0; q < 4; ++q, out += kLaneVector) {
    const auto four = [&](const uint8_t* codes) {
      const uint8_t* at = codes + 2 * q;
      return uint32_t{at[0]} | uint32_t{at[1]} << 16 | uint32_t{at[8]} << 8 | uint32_t{at[9]} << 24;
    };
    const uint32_t word = four(low) | four(high) << 4;
    std::memcpy(out, &word, sizeof word);
  }
}

void put_int8(const uint8_t* low, const uint8_t* high, std::byte* out) {
  for (int q = 0; q < 4; ++q, out += kLaneVector) {
    for (int half = 0; half < 2; ++half) {
      std::memcpy(out + 4 * half, low + 2 * q + 8 * half, 2);
      std::memcpy(out + 4 * half + 2, high + 2 * q + 8 * half, 2);
    }
  }
}

}  // namespace

QuantTileWriter::QuantTileWriter(const WeightSpec& spec, const QuantLayout& layout,
                                 const std::vector<int64_t>& rows)
    : spec_(spec), layout_(layout), rows_(rows), groups_(static_cast<size_t>(kTileRows)) {
  if (spec.parts.front().codes != nullptr) return;
  const auto size = static_cast<size_t>(layout.format.group_size);
  numbers_.resize(static_cast<size_t>(kTileRows) * size);
  if (rounds_rows(layout.format)) return;
  const auto cols = static_cast<size_t>(rounding().panel_cols);
  HEADRACE_CHECK(kTileRows % rounding().panel_cols == 0, cols);
  panel_.resize(cols * (2 + size * static_cast<size_t>(layout.format.bits) / 8));
}

void QuantTileWriter::write(int64_t first, std::byte* out) {
  std::memset(out, 0, static_cast<size_t>(kTileRows / kQuantTile * layout_.tile_bytes()));
  const int64_t groups = ceil_div(layout_.matrix.k, int64_t{layout_.format.group_size});
  const bool codes = spec_.parts.front().codes != nullptr, rounded = rounds_rows(layout_.format);
  if (rounded && !codes && layout_.groups() == 1) measure_rows(first);
  for (int64_t group = 0; group < groups; ++group) {
    if (codes) {
      read_codes(first, group);
    } else if (rounded) {
      round_like_rows(first, group);
    } else {
      round_numbers(first, group);
    }
    if (rounded) {
      put_rounded(group, out);
    } else {
      put_group(group, out);
    }
  }
}

void QuantTileWriter::read_codes(int64_t first, int64_t group) {
  for (int64_t i = 0; i < kTileRows;) {
    const int64_t row = rows_[static_cast<size_t>(first + i)];
    if (row < 0) {
      groups_[static_cast<size_t>(i++)] = {};
      continue;
    }
    const WeightColumn start = find_feature(spec_.parts, row);
    int64_t length = 1;
    while (i + length < kTileRows &&
           rows_[static_cast<size_t>(first + i + length)] == row + length &&
           start.feature + length < start.part->n) {
      ++length;
    }
    start.part->codes->read(start.feature, length, group, &groups_[static_cast<size_t>(i)]);
    check_scales(*start.part, i, length);
    i += length;
  }
}

void QuantTileWriter::check_scales(const WeightPart& part, int64_t first, int64_t count) const {
  const uint16_t exponent = layout_.format.f16_scales ? 0x7c00 : 0x7f80;
  for (int64_t i = first; i < first + count; ++i) {
    const QuantizedGroup& group = groups_[static_cast<size_t>(i)];
    // Of codes that meet codes, what the largest one stands for.
    const bool finite = rounds_rows(layout_.format)
                            ? std::isfinite(group.wide_scale * most_of(layout_.format))
                            : (group.scale & exponent) != exponent;
    if (!finite) refuse_scales(part);
  }
}

void QuantTileWriter::round_numbers(int64_t first, int64_t group) {
  const int64_t size = layout_.format.group_size, begin = group * size;
  const int64_t count = std::min(size, layout_.matrix.k - begin);
  for (int64_t i = 0; i < kTileRows; ++i) {
    float* to = numbers_.data() + i * size;
    std::fill_n(to, size, 0.0f);
    const int64_t row = rows_[static_cast<size_t>(first + i)];
    if (row >= 0) read_weight_row(spec_, row, begin, count, to);
  }
  const QuantKernels& kernels = rounding();
  const auto cols = static_cast<size_t>(kernels.panel_cols);
  for (size_t column = 0; column < static_cast<size_t>(kTileRows); column += cols) {
    kernels.quantize_panel(numbers_.data() + column * static_cast<size_t>(size), size,
                           layout_.format, panel_.data());
    const auto* codes = reinterpret_cast<const uint8_t*>(panel_.data()) +
                        quant_codes_offset(layout_.format, static_cast<int64_t>(cols));
    for (size_t c = 0; c < cols; ++c) {
      QuantizedGroup& out = groups_[column + c];
      std::memcpy(&out.scale, panel_.data() + 2 * c, sizeof out.scale);
      out.zero = static_cast<uint8_t>(quant_zero(layout_.format.bits));
      for (size_t i = 0; i < static_cast<size_t>(size); ++i) {
        const size_t step = layout_.format.bits == 8 ? i / 4 : i / 8;
        const uint8_t byte = codes[(step * cols + c) * 4 + i % 4];
        out.codes[i] = layout_.format.bits == 8 ? byte : i % 8 < 4 ? byte & 15 : byte >> 4;
      }
    }
  }
}

void QuantTileWriter::put_group(int64_t group, std::byte* out) const {
  const QuantFormat& format = layout_.format;
  const int64_t steps = format.group_size / 16;
  for (int64_t i = 0; i < kTileRows; ++i) {
    std::byte* tile = out + i / kQuantTile * layout_.tile_bytes();
    const auto row = static_cast<int>(i % kQuantTile);
    const QuantizedGroup& own = groups_[static_cast<size_t>(i)];
    const int64_t pair = group * kQuantTile + pair_place(row);
    std::memcpy(tile + layout_.scales_at() + pair * 2, &own.scale, sizeof own.scale);
    if (format.zero_points) tile[layout_.zeros_at() + pair] = static_cast<std::byte>(own.zero);
    if (row >= 8) continue;  // goes with the row 8 above it
    const QuantizedGroup& other = groups_[static_cast<size_t>(i + 8)];
    for (int64_t step = 0; step < steps; ++step) {
      const CodePlace place = code_place(format.bits, row, (group * steps + step) * 16);
      (format.bits == 8 ? put_int8 : put_int4)(own.codes + step * 16, other.codes + step * 16,
                                               tile + place.byte);
    }
  }
}

void QuantTileWriter::measure_rows(int64_t first) {
  const int64_t k = layout_.matrix.k;
  std::vector<float> row(static_cast<size_t>(k));
  tops_.assign(static_cast<size_t>(kTileRows), 0.0f);
  for (int64_t i = 0; i < kTileRows; ++i) {
    const int64_t feature = rows_[static_cast<size_t>(first + i)];
    if (feature < 0) continue;
    read_weight_row(spec_, feature, 0, k, row.data());
    for (const float x : row) tops_[size_t(i)] = std::max(tops_[size_t(i)], std::abs(x));
  }
}

void QuantTileWriter::round_like_rows(int64_t first, int64_t group) {
  const int64_t size = layout_.format.group_size, begin = group * size;
  const int64_t count = std::min(size, layout_.matrix.k - begin);
  for (int64_t i = 0; i < kTileRows; ++i) {
    QuantizedGroup& out = groups_[static_cast<size_t>(i)];
    out = {};
    const int64_t row = rows_[static_cast<size_t>(first + i)];
    if (row < 0) continue;
    read_weight_row(spec_, row, begin, count, numbers_.data());
    const std::span<const float> numbers(numbers_.data(), static_cast<size_t>(count));
    round_like_activations(layout_.format, numbers,
                           layout_.groups() == 1 ? tops_[size_t(i)] : largest_size(numbers), &out);
  }
}

void QuantTileWriter::put_rounded(int64_t group, std::byte* out) const {
  const int64_t size = layout_.format.group_size;
  const uint8_t flip = has_float8(layout_.format) ? 0 : 0x80;
  for (int64_t i = 0; i < kTileRows; ++i) {
    std::byte* tile = out + i / kQuantTile * layout_.tile_bytes();
    const auto row = static_cast<int>(i % kQuantTile);
    const QuantizedGroup& own = groups_[static_cast<size_t>(i)];
    const int64_t pair = (layout_.groups() == 1 ? 0 : group) * kQuantTile + pair_place(row);
    std::memcpy(tile + layout_.scales_at() + pair * 4, &own.wide_scale, sizeof own.wide_scale);
    for (int64_t j = 0; j < size; ++j) {
      const bool stored = group * size + j < layout_.matrix.k;
      tile[rounded_code_place(row, group * size + j)] =
          static_cast<std::byte>(stored ? own.codes[j] ^ flip : 0);
    }
  }
}

}  // namespace headrace::cuda
