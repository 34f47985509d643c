#include "cuda/host/memory/stream_writer.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"

namespace headrace::cuda {

namespace {

constexpr size_t kAlignment = 16;

/// A block of at most kPieceBytes of a matrix.
struct Block {
  int64_t row, rows, column, columns;
};

void convert(std::span<const float> values, int64_t width, const Block& block, DType dtype,
             std::byte* to) {
  const auto columns = static_cast<size_t>(block.columns);
  const auto to_half = dtype == DType::kBF16 ? &f32_to_bf16 : &f32_to_f16;
  for (int64_t i = 0; i < block.rows; ++i, to += columns * dtype_size(dtype)) {
    const float* from = values.data() + (block.row + i) * width + block.column;
    if (dtype == DType::kF32) {
      std::memcpy(to, from, columns * sizeof(float));
    } else {
      std::transform(from, from + columns, reinterpret_cast<uint16_t*>(to), to_half);
    }
  }
}

}  // namespace

std::byte* StreamWriter::take(size_t bytes) {
  if (bytes > kPieceBytes - used_) {
    used_ = kPieceBytes;
    Piece& full = pieces_[current_];
    if (!full.copied.empty()) full.copied.record(context_.stream());
    current_ = (current_ + 1) % pieces_.size();
    Piece& next = pieces_[current_];
    if (next.copied.empty()) next.copied = EventHandle(context_);
    if (next.memory.bytes() == 0) next.memory = PinnedBuffer(context_, kPieceBytes);
    next.copied.wait();
    used_ = 0;
  }
  std::byte* const out = pieces_[current_].memory.data() + used_;
  used_ = std::min(used_ + round_up(bytes, kAlignment), kPieceBytes);
  return out;
}

void StreamWriter::write_rows(std::span<const float> values, const TensorView& to) {
  HEADRACE_CHECK(to.dtype == DType::kF32 || to.dtype == DType::kBF16 || to.dtype == DType::kF16,
                 dtype_name(to.dtype));
  HEADRACE_CHECK(to.shape.rank() == 2 && to.row_stride >= to.cols() &&
                     static_cast<int64_t>(values.size()) == to.shape.elements(),
                 values.size(), " for ", to.shape.elements());
  if (values.empty()) return;
  const auto element = dtype_size(to.dtype);
  const auto most = static_cast<int64_t>(kPieceBytes / element);
  const int64_t width = to.cols(), columns = std::min(width, most), rows = most / columns;
  for (int64_t row = 0; row < to.rows(); row += rows) {
    for (int64_t column = 0; column < width; column += columns) {
      const Block block{row, std::min(rows, to.rows() - row), column,
                        std::min(columns, width - column)};
      const size_t bytes = static_cast<size_t>(block.columns) * element;
      std::byte* const pinned = take(bytes * static_cast<size_t>(block.rows));
      convert(values, width, block, to.dtype, pinned);
      auto* const start = static_cast<std::byte*>(to.data) +
                          static_cast<size_t>(row * to.row_stride + column) * element;
      context_.check(
          context_.api().copy_rows({.to = start,
                                    .to_pitch = static_cast<size_t>(to.row_stride) * element,
                                    .from = pinned,
                                    .from_pitch = bytes,
                                    .bytes = bytes,
                                    .count = static_cast<size_t>(block.rows)},
                                   CopyKind::kHostToDevice, context_.stream()),
          "copying rows");
    }
  }
}

void StreamWriter::write(const void* source, size_t bytes, void* device) {
  for (size_t done = 0; done < bytes; done += kPieceBytes) {
    const size_t count = std::min(bytes - done, kPieceBytes);
    std::byte* const pinned = take(count);
    std::memcpy(pinned, static_cast<const std::byte*>(source) + done, count);
    context_.check(context_.api().copy(static_cast<std::byte*>(device) + done, pinned, count,
                                       CopyKind::kHostToDevice, context_.stream()),
                   "copying a list");
  }
}

}  // namespace headrace::cuda
