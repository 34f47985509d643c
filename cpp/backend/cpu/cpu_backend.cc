#include "backend/cpu/cpu_backend.h"

#include <cstring>
#include <utility>

#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/cpu_info.h"
#include "backend/cpu/op_checks.h"
#include "backend/cpu/packed_panels.h"
#include "backend/cpu/quant_panels.h"
#include "backend/cpu/reference/reference_backend.h"
#include "backend/cpu/weight_source.h"
#include "base/check.h"
#include "base/env.h"
#include "memory/mmap_allocator.h"

namespace headrace {

CpuBackend::CpuBackend(const CpuIsa& isa, int32_t num_threads, size_t memory_limit)
    : isa_(&isa), memory_(memory_limit), pool_(num_threads) {}

DeviceInfo CpuBackend::device_info() const {
  const RawMemoryInfo memory = host_memory_info();
  DeviceInfo info;
  info.name = "cpu";
  info.isa = isa_->name;
  info.num_threads = pool_.num_threads();
  info.description = str_cat(cpu_brand(), ", ", info.isa, ", ", info.num_threads,
                             info.num_threads == 1 ? " thread" : " threads");
  info.total_bytes = memory.total_bytes;
  info.free_bytes = memory.free_bytes;
  return info;
}

void CpuBackend::require(const BackendNeeds& needs) const { require_cpu_needs(needs); }

DType CpuBackend::activation_dtype(DType) const { return DType::kF32; }

Backend::Buffer CpuBackend::allocate(size_t bytes) { return memory_.allocate(bytes); }

Backend::Buffer CpuBackend::adopt(const void* data, size_t bytes, std::shared_ptr<void> owner) {
  return adopt_host_memory(data, bytes, std::move(owner));
}

size_t CpuBackend::bytes_in_use() const { return memory_.bytes_in_use(); }

size_t CpuBackend::bytes_held() const { return memory_.bytes_held(); }

void CpuBackend::upload(const void* source, void* device, size_t bytes) {
  if (bytes > 0) std::memcpy(device, source, bytes);
}

void CpuBackend::read_back(const void* device, void* destination, size_t bytes) {
  if (bytes > 0) std::memcpy(destination, device, bytes);
}

std::unique_ptr<PackedWeight> CpuBackend::pack_weight(const WeightSpec& spec) {
  if (spec.quant.bits != 0) return pack_quantized(spec, *isa_, memory_, pool_);
  return pack_panels(spec, *isa_->linear, memory_, pool_);
}

std::string CpuBackend::weight_layout(DType storage, const QuantFormat& quant) const {
  if (quant.bits != 0) return quant_layout_name(*isa_->quant);
  return panel_layout_name(storage, *isa_->linear);
}

size_t CpuBackend::packed_bytes(const WeightShape& shape) const {
  if (shape.quant.bits != 0) return packed_quant_bytes(shape, *isa_->quant);
  return packed_panel_bytes(shape, *isa_->linear);
}

std::unique_ptr<PackedWeight> CpuBackend::restore_weight(const WeightShape& shape,
                                                         Buffer contents) {
  if (shape.quant.bits != 0) return restore_quantized(shape, *isa_->quant, std::move(contents));
  return restore_panels(shape, *isa_->linear, std::move(contents));
}

TensorView CpuBackend::pack_vector(const WeightPart& part, Buffer* owner) {
  check_vector(part);
  *owner = allocate(static_cast<size_t>(part.n) * sizeof(float));
  read_vector(part, static_cast<float*>(owner->data));
  return TensorView(owner->data, DType::kF32, {part.n});
}

void CpuBackend::begin_step(const StepBatch& batch) {
  check_batch(batch);
  step_ = batch;
}

std::byte* CpuBackend::scratch(size_t bytes) { return grow(scratch_, bytes); }

std::byte* CpuBackend::grow(Buffer& buffer, size_t bytes) {
  if (bytes > buffer.bytes) {
    buffer = {};
    buffer = allocate(bytes);
  }
  return static_cast<std::byte*>(buffer.data);
}

std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options) {
  const std::string isa = options.isa.empty() ? env_cpu_isa().value_or("") : options.isa;
  if (isa == "reference") return make_reference_backend(options.memory_limit);
  int32_t threads = options.num_threads;
  if (threads == 0) threads = env_num_threads().value_or(usable_cores());
  if (threads < 1 || threads > 1024) {
    throw_error(ErrorCode::kInvalidArgument, "num_threads is ", threads,
                ": choose 1 to 1024, or 0 for the default");
  }
  return std::make_unique<CpuBackend>(select_cpu_isa(isa), threads, options.memory_limit);
}

}  // namespace headrace
