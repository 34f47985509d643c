#include "cuda/host/stream_writer.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace headrace::cuda {

namespace {

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

StreamWriter::Piece& StreamWriter::next_piece() {
  Piece& piece = pieces_[next_];
  next_ = (next_ + 1) % pieces_.size();
  if (piece.memory.bytes() == 0)
    piece = {PinnedBuffer(context_, kPieceBytes), EventHandle(context_)};
  piece.copied.wait();
  return piece;
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
      Piece& piece = next_piece();
      convert(values, width, block, to.dtype, piece.memory.data());
      const size_t bytes = static_cast<size_t>(block.columns) * element;
      auto* const start = static_cast<std::byte*>(to.data) +
                          static_cast<size_t>(row * to.row_stride + column) * element;
      context_.check(
          context_.api().copy_rows({.to = start,
                                    .to_pitch = static_cast<size_t>(to.row_stride) * element,
                                    .from = piece.memory.data(),
                                    .from_pitch = bytes,
                                    .bytes = bytes,
                                    .count = static_cast<size_t>(block.rows)},
                                   CopyKind::kHostToDevice, context_.stream()),
          "copying rows");
      piece.copied.record(context_.stream());
    }
  }
}

void StreamWriter::write(const void* source, size_t bytes, void* device) {
  for (size_t done = 0; done < bytes; done += kPieceBytes) {
    const size_t count = std::min(bytes - done, kPieceBytes);
    Piece& piece = next_piece();
    std::memcpy(piece.memory.data(), static_cast<const std::byte*>(source) + done, count);
    context_.check(context_.api().copy(static_cast<std::byte*>(device) + done, piece.memory.data(),
                                       count, CopyKind::kHostToDevice, context_.stream()),
                   "copying a list");
    piece.copied.record(context_.stream());
  }
}

}  // namespace headrace::cuda
