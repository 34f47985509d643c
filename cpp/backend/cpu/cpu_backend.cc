#include "backend/cpu/cpu_backend.h"

#include <cstring>
#include <utility>

#include "backend/checks/op_checks.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/weights/float4_panels.h"
#include "backend/cpu/weights/packed_panels.h"
#include "backend/cpu/weights/quant_panels.h"
#include "backend/host/cpu_info.h"
#include "backend/host/weight_source.h"
#include "backend/reference/reference_backend.h"
#include "base/check.h"
#include "base/env.h"
#include "memory/mmap_allocator.h"

namespace headrace {

CpuBackend::CpuBackend(const CpuIsa& isa, int32_t num_threads, size_t memory_limit)
    : isa_(&isa), memory_(memory_limit), pool_(num_threads) {}

CpuBackend::CpuBackend(const CpuIsa& isa, int32_t num_threads, std::vector<NumaNode> nodes,
                       size_t memory_limit)
    : isa_(&isa),
      nodes_(std::move(nodes)),
      memory_(memory_limit),
      pool_(share_threads(num_threads, nodes_)) {}

DeviceInfo CpuBackend::device_info() const {
  const RawMemoryInfo memory = host_memory_info();
  DeviceInfo info;
  info.name = nodes_.empty() ? "cpu" : "cpu_numa";
  info.isa = isa_->name;
  info.num_threads = pool_.num_threads();
  info.num_nodes = pool_.num_groups();
  info.description = str_cat(cpu_brand(), ", ", info.isa, ", ", info.num_threads,
                             info.num_threads == 1 ? " thread" : " threads");
  info.total_bytes = memory.total_bytes;
  info.free_bytes = memory.free_bytes;
  info.float4_weights = true;
  return info;
}

void CpuBackend::require(const BackendNeeds& needs) { require_cpu_needs(needs); }

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
  std::unique_ptr<PackedWeight> weight;
  if (spec.quant.float4) {
    weight = pack_float4(spec, *isa_->linear, memory_, pool_);
  } else if (spec.quant.bits != 0) {
    weight = pack_quantized(spec, *isa_, memory_, pool_);
  } else {
    weight = pack_panels(spec, *isa_->linear, memory_, pool_);
  }
  place(*weight);
  return weight;
}

// Packing has first touched most pages where they belong: this moves those at the borders, and
// those of memory that was in use before.
void CpuBackend::place(const PackedWeight& weight) {
  if (nodes_.empty()) return;
  const auto& panels = dynamic_cast<const PanelWeight&>(weight);
  auto* const data = static_cast<std::byte*>(const_cast<void*>(weight.data()));
  for (int32_t group = 0; group < pool_.num_groups(); ++group) {
    const ThreadPool::Range part = pool_.part_of(group, panels.num_panels());
    const int32_t node = nodes_[static_cast<size_t>(group)].id;
    for (int32_t expert = 0; expert < panels.experts(); ++expert) {
      place_near(data + panels.panel_offset(part.begin, expert),
                 static_cast<size_t>((part.end - part.begin) * panels.panel_bytes()), node);
    }
  }
}

std::string CpuBackend::weight_layout(DType storage, const QuantFormat& quant) const {
  if (quant.float4) return float4_layout_name(*isa_->linear);
  if (quant.bits != 0) return quant_layout_name(quant, *isa_->quant);
  return panel_layout_name(storage, *isa_->linear);
}

size_t CpuBackend::packed_bytes(const WeightShape& shape) const {
  if (shape.quant.float4) return packed_float4_bytes(shape, *isa_->linear);
  if (shape.quant.bits != 0) return packed_quant_bytes(shape, *isa_->quant);
  return packed_panel_bytes(shape, *isa_->linear);
}

std::unique_ptr<PackedWeight> CpuBackend::restore_weight(const WeightShape& shape,
                                                         Buffer contents) {
  std::unique_ptr<PackedWeight> weight;
  if (shape.quant.float4) {
    weight = restore_float4(shape, *isa_->linear, std::move(contents));
  } else if (shape.quant.bits != 0) {
    weight = restore_quantized(shape, *isa_->quant, std::move(contents));
  } else {
    weight = restore_panels(shape, *isa_->linear, std::move(contents));
  }
  place(*weight);
  return weight;
}

std::unique_ptr<PackedWeight> CpuBackend::adopt_rows(const WeightShape& shape, const void* rows,
                                                     std::shared_ptr<void> owner) {
  HEADRACE_CHECK(shape.use == WeightUse::kEmbedding && shape.quant.bits == 0, shape.n);
  if (reinterpret_cast<uintptr_t>(rows) % dtype_size(shape.storage) != 0) return nullptr;
  return restore_panels(shape, *isa_->linear,
                        {const_cast<void*>(rows), packed_bytes(shape), std::move(owner)});
}

TensorView CpuBackend::pack_vector(const WeightPart& part, Buffer* owner) {
  check_vector(part);
  *owner = allocate(static_cast<size_t>(part.n) * sizeof(float));
  read_vector(part, DType::kF32, static_cast<float*>(owner->data));
  return TensorView(owner->data, DType::kF32, {part.n});
}

void CpuBackend::begin_step(const StepBatch& batch) {
  check_batch(batch);
  step_ = batch;
  expected_ = nullptr;  // if the last step failed
}

void CpuBackend::reserve(const std::function<void()>& ops) {
  struct Reserving {
    bool& flag;
    explicit Reserving(bool& to) : flag(to) { flag = true; }
    ~Reserving() { flag = false; }
  } const reserving(reserving_);
  ops();
}

std::byte* CpuBackend::scratch(size_t bytes) { return grow(scratch_, bytes); }

std::byte* CpuBackend::grow(Buffer& buffer, size_t bytes) {
  if (bytes > buffer.bytes) {
    buffer = {};
    buffer = allocate(bytes);
  }
  return static_cast<std::byte*>(buffer.data);
}

namespace {

int32_t count_cores(const std::vector<NumaNode>& nodes) {
  int32_t count = 0;
  for (const NumaNode& node : nodes) count += node.cpus.count();
  return count;
}

/// A rank's threads, and its nodes: none if there aren't as many as ranks.
void share_out(const RankPlace& rank, int32_t& threads, std::vector<NumaNode>& nodes) {
  if (threads < rank.count) {
    throw_error(ErrorCode::kInvalidArgument, "num_threads is ", threads, ", but each of the ",
                rank.count,
                " devices of tensor_parallel_size x data_parallel_size needs one: ", "raise it to ",
                rank.count, " or more.");
  }
  const auto part = [&](int64_t size, int32_t index) {
    return static_cast<int32_t>(size * index / rank.count);
  };
  const auto count = static_cast<int64_t>(nodes.size());
  const int32_t first = part(count, rank.index), end = part(count, rank.index + 1);
  if (count < rank.count || threads < count) {
    nodes.clear();
    threads = threads / rank.count + (rank.index < threads % rank.count ? 1 : 0);
    return;
  }
  const std::vector<ThreadGroup> groups = share_threads(threads, nodes);
  threads = 0;
  for (int32_t i = first; i < end; ++i) threads += groups[static_cast<size_t>(i)].threads;
  nodes = {nodes.begin() + first, nodes.begin() + end};
}

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options) {
  const std::string isa = options.isa.empty() ? env_cpu_isa().value_or("") : options.isa;
  if (isa == "reference") return make_reference_backend(options.memory_limit);
  std::vector<NumaNode> nodes;
  const bool is_rank = options.rank.count > 1;
  if (options.numa || is_rank) nodes = choose_numa_nodes(options.numa_nodes);
  int32_t threads = options.num_threads;
  if (threads == 0)
    threads = env_num_threads().value_or(nodes.empty() ? usable_cores() : count_cores(nodes));
  if (threads < 1 || threads > 1024) {
    throw_error(ErrorCode::kInvalidArgument, "num_threads is ", threads,
                ": choose 1 to 1024, or 0 for the default");
  }
  if (is_rank) share_out(options.rank, threads, nodes);
  if (!nodes.empty()) {
    return std::make_unique<CpuBackend>(select_cpu_isa(isa), threads, std::move(nodes),
                                        options.memory_limit);
  }
  return std::make_unique<CpuBackend>(select_cpu_isa(isa), threads, options.memory_limit);
}

}  // namespace headrace
