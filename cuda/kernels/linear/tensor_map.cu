#include "cuda/kernels/linear/tensor_map.h"

#include "base/check.h"
#include "cuda/device/platform.cuh"

namespace headrace::cuda {

#if defined(HEADRACE_CUDA_EMULATION)

TensorMap make_tensor_map(const ConstMatrix& matrix, DType, int box_rows) {
  const TensorMap map{static_cast<const char*>(matrix.data), matrix.rows, matrix.cols,
                      matrix.stride * 2, box_rows};
  emulation::check_tensor_map(map);
  return map;
}

TensorMap make_tile_map(const TiledBytes& bytes, int box_tiles) {
  const TensorMap map{.data = static_cast<const char*>(bytes.data),
                      .rows = bytes.tiles * kMapTileRows,
                      .cols = bytes.units,
                      .stride_bytes = bytes.tile_bytes,
                      .box_rows = box_tiles * kMapTileRows,
                      .tile_rows = kMapTileRows};
  emulation::check_tensor_map(map);
  return map;
}

TensorMap make_run_map(const RunBytes& run, int box_bytes, int box_tiles) {
  const TensorMap map{.data = static_cast<const char*>(run.data),
                      .rows = run.tiles,
                      .cols = run.bytes,
                      .stride_bytes = run.tile_bytes,
                      .box_rows = box_tiles,
                      .run_bytes = box_bytes};
  emulation::check_tensor_map(map);
  return map;
}

#else

namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

/// From the driver, which this library doesn't link to.
EncodeTiled encode_tiled() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                              12000, cudaEnableDefault, &found);
  HEADRACE_CHECK(status == cudaSuccess && found == cudaDriverEntryPointSuccess,
                 static_cast<int>(status));
  return reinterpret_cast<EncodeTiled>(function);
}

/// Sizes from the innermost on, and of all but that the bytes from one to the next.
template <size_t kRank>
TensorMap encode(CUtensorMapDataType type, const void* data, const cuuint64_t (&sizes)[kRank],
                 const cuuint64_t (&strides)[kRank - 1], const cuuint32_t (&box)[kRank],
                 CUtensorMapSwizzle swizzle) {
  static const EncodeTiled encode_tiled_map = encode_tiled();
  cuuint32_t steps[kRank];
  for (cuuint32_t& step : steps) step = 1;
  TensorMap map;
  const CUresult result =
      encode_tiled_map(&map, type, kRank, const_cast<void*>(data), sizes, strides, box, steps,
                       CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  HEADRACE_CHECK(result == CUDA_SUCCESS, static_cast<int>(result));
  return map;
}

}  // namespace

TensorMap make_tensor_map(const ConstMatrix& matrix, DType dtype, int box_rows) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(matrix.cols),
                              static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(matrix.stride) * 2};
  const cuuint32_t box[] = {kBoxColumns, static_cast<cuuint32_t>(box_rows)};
  return encode(
      dtype == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      matrix.data, sizes, strides, box, CU_TENSOR_MAP_SWIZZLE_128B);
}

TensorMap make_tile_map(const TiledBytes& bytes, int box_tiles) {
  constexpr cuuint64_t kUnitRowBytes = kMapUnitBytes;
  const cuuint64_t sizes[] = {kUnitRowBytes, kMapTileRows, static_cast<cuuint64_t>(bytes.units),
                              static_cast<cuuint64_t>(bytes.tiles)};
  const cuuint64_t strides[] = {kUnitRowBytes, kMapTileRows * kUnitRowBytes,
                                static_cast<cuuint64_t>(bytes.tile_bytes)};
  const cuuint32_t box[] = {kMapUnitBytes, kMapTileRows, 1, static_cast<cuuint32_t>(box_tiles)};
  return encode(CU_TENSOR_MAP_DATA_TYPE_UINT8, bytes.data, sizes, strides, box,
                CU_TENSOR_MAP_SWIZZLE_128B);
}

TensorMap make_run_map(const RunBytes& run, int box_bytes, int box_tiles) {
  constexpr int kWord = 4;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(run.bytes / kWord),
                              static_cast<cuuint64_t>(run.tiles)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(run.tile_bytes)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(box_bytes / kWord),
                            static_cast<cuuint32_t>(box_tiles)};
  return encode(CU_TENSOR_MAP_DATA_TYPE_UINT32, run.data, sizes, strides, box,
                CU_TENSOR_MAP_SWIZZLE_NONE);
}

#endif

}  // namespace headrace::cuda
