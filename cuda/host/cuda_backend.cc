#include "cuda/host/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/checks/op_checks_attention.h"
#include "backend/checks/op_checks_state.h"
#include "backend/host/cpu_info.h"
#include "base/check.h"
#include "base/checked_math.h"
#include "cuda/host/memory/device_kv_cache.h"
#include "cuda/host/weights/quant_weight.h"

namespace headrace::cuda {

namespace {

/// Debug and sanitizer builds call a recorded step's ops again before they launch the record, to
/// assert that they are the same.
#if !defined(NDEBUG) || defined(HEADRACE_ASAN) || defined(HEADRACE_TSAN)
constexpr bool kCheckReplays = true;
#else
constexpr bool kCheckReplays = false;
#endif

constexpr int kHopper = 9;  // compute capability with wgmma
constexpr int32_t kMaxUploadThreads = 8;
constexpr int32_t kLoraUploadThreads = 2;
constexpr size_t kReadBackBytes = size_t{1} << 20;
// A step's lists of rows and adapters, which reserve() doesn't see.
constexpr size_t kAdapterListBytes = size_t{8} << 20;

bool storable(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

}  // namespace

CudaBackend::CudaBackend(CudaApi& api, const CudaBackendOptions& options)
    : context_(api, options.device),
      record_steps_(options.record_steps),
      use_peers_(options.use_peers),
      nccl_(options.nccl),
      has_wgmma_(!options.plain_kernels && context_.properties().major == kHopper),
      codes_by_wgmma_(has_wgmma_),
      quant_by_wgmma_(has_wgmma_),
      attends_by_wgmma_(has_wgmma_),
      storage_(options.storage),
      memory_(context_, options.memory_limit),
      released_(context_),
      uploader_(context_, std::min(usable_cores(), kMaxUploadThreads)),
      lora_uploader_(context_, kLoraUploadThreads, &released_),
      arena_(context_, memory_),
      sample_arena_(context_, memory_),
      writer_(context_),
      graphs_(context_, kCheckReplays),
      tries_kernels_(options.try_kernels),
      trials_folder_(options.trials_folder) {
  if (tries_kernels_) try_kernels();
}

CudaBackend::~CudaBackend() {
  // Nothing on the GPU reads memory any more when members go.
  static_cast<void>(context_.api().set_device(context_.device()));
  static_cast<void>(context_.api().synchronize(context_.stream()));
}

DeviceInfo CudaBackend::device_info() const {
  const DeviceProperties& gpu = context_.properties();
  const RawMemoryInfo memory = memory_.info();
  DeviceInfo info;
  info.name = str_cat("cuda:", context_.device());
  info.isa = str_cat("sm_", gpu.major, gpu.minor);
  info.description = str_cat(gpu.name, ", compute capability ", gpu.major, ".", gpu.minor);
  info.total_bytes = memory.total_bytes;
  info.free_bytes = memory.free_bytes;
  info.host_memory = false;
  info.measured_memory = true;
  info.caches_packed = false;
  info.busy_rows = 4096;
  info.quant_activations = Activations::kWhole;
  info.code_products = true;
  info.replaced_kernels = replaced_kernels_;
  return info;
}

void CudaBackend::require(const BackendNeeds& needs) {
  if (!storable(needs.storage)) {
    throw_error(ErrorCode::kUnsupported, "the CUDA backend keeps weights as float32, bfloat16 or ",
                "float16, not as ", dtype_name(needs.storage), ": set dtype.");
  }
  const int32_t largest = needs.latent ? kLargestLatent : kLargestHead;
  if (needs.head_dim < 16 || needs.head_dim > largest || needs.head_dim % 16 != 0) {
    throw_error(ErrorCode::kUnsupported, "the CUDA backend runs head_dim 16, 32, ..., ", largest,
                ", not ", needs.head_dim, ": use device cpu.");
  }
  if (tries_kernels_) try_model_kernels(needs);
  refuse_model(needs);
}

DType CudaBackend::activation_dtype(DType storage) const {
  if (storage != storage_) {
    throw_error(ErrorCode::kUnsupported,
                "a model and its draft model must have one dtype on a GPU, ", "not ",
                dtype_name(storage_), " and ", dtype_name(storage), ": set dtype.");
  }
  return storage_;
}

// Ops that use a buffer may still be queued when it is given back. What takes its place is written
// behind them on the same stream, or after a wait, but for what is uploaded on another thread.
Backend::Buffer CudaBackend::allocate(size_t bytes) {
  Buffer buffer = memory_.allocate(bytes);
  auto release = [this, owner = std::move(buffer.owner)](void*) mutable {
    static_cast<void>(context_.api().set_device(context_.device()));
    released_.try_record(context_.stream());
    owner.reset();
  };
  buffer.owner = std::shared_ptr<void>(buffer.data, std::move(release));
  return buffer;
}

Backend::Buffer CudaBackend::adopt(const void* data, size_t bytes, std::shared_ptr<void> owner) {
  Buffer buffer = memory_.allocate(bytes);
  uploader_.write(buffer.data, data, bytes);
  owner.reset();
  return buffer;
}

size_t CudaBackend::bytes_in_use() const { return memory_.bytes_in_use(); }

size_t CudaBackend::bytes_held() const { return memory_.bytes_held(); }

void CudaBackend::upload(const void* source, void* device, size_t bytes) {
  context_.enter();
  rounded_ahead_ = {};
  context_.wait();
  uploader_.write(device, source, bytes);
  uploader_.flush();
}

void CudaBackend::read_back(const void* device, void* destination, size_t bytes) {
  context_.enter();
  uploader_.flush();
  for (size_t done = 0; done < bytes;) {
    const size_t piece = std::min(bytes - done, kReadBackBytes);
    std::byte* const pinned = pinned_results(piece);
    context_.check(context_.api().copy(pinned, static_cast<const std::byte*>(device) + done, piece,
                                       CopyKind::kDeviceToHost, context_.stream()),
                   "reading results");
    context_.wait();
    std::memcpy(static_cast<std::byte*>(destination) + done, pinned, piece);
    done += piece;
  }
  context_.wait();
  expect_answers();
}

std::byte* CudaBackend::pinned_results(size_t bytes) {
  if (results_.bytes() < bytes) {
    context_.wait();
    results_ = {};
    results_ = PinnedBuffer(context_, round_up(bytes, kReadBackBytes / 16));
  }
  return results_.data();
}

void* CudaBackend::grow(Buffer& workspace, size_t bytes) {
  if (workspace.bytes < bytes) {
    HEADRACE_CHECK(!graphs_.recording());
    context_.wait();
    // Half as much again: contexts grow a little with every step.
    const size_t wanted = bytes + workspace.bytes / 2;
    workspace = {};
    workspace = memory_.allocate(wanted);
    ++workspace_generation_;
  }
  return workspace.data;
}

std::unique_ptr<PackedWeight> CudaBackend::pack_weight(const WeightSpec& spec) {
  refuse_weight(spec.quant, spec.storage, spec.experts);
  if (spec.quant.bits != 0) return pack_quant_weight(spec, memory_, uploader_);
  return pack_device_weight(spec, memory_, uploader_);
}

std::string CudaBackend::weight_layout(DType, const QuantFormat& quant) const {
  return quant.bits != 0 ? quant_weight_layout(quant) : device_weight_layout();
}

size_t CudaBackend::packed_bytes(const WeightShape& shape) const {
  return shape.quant.bits != 0 ? quant_weight_bytes(shape) : device_weight_bytes(shape);
}

std::unique_ptr<PackedWeight> CudaBackend::restore_weight(const WeightShape& shape,
                                                          Buffer contents) {
  refuse_weight(shape.quant, shape.storage, shape.experts);
  if (shape.quant.bits != 0) {
    return restore_quant_weight(
        shape, std::move(contents),
        [this](const void* device, void* host, size_t bytes) { read_back(device, host, bytes); });
  }
  HEADRACE_CHECK(contents.bytes == packed_bytes(shape), contents.bytes);
  return std::make_unique<DeviceWeight>(shape, std::move(contents));
}

TensorView CudaBackend::pack_vector(const WeightPart& part, Buffer* owner) {
  return pack_device_vector(part, storage_, memory_, uploader_, owner);
}

TensorView CudaBackend::pack_float_vector(const WeightPart& part, Buffer* owner) {
  return pack_device_vector(part, DType::kF32, memory_, uploader_, owner);
}

std::unique_ptr<PackedLora> CudaBackend::pack_lora(const LoraSpec& spec) {
  return pack_device_lora(spec, memory_, lora_uploader_);
}

size_t CudaBackend::kv_block_bytes(const CacheLayout& layout) const {
  return DeviceKvCache::block_bytes(layout);
}

size_t CudaBackend::state_slot_bytes(const CacheLayout& layout) const {
  check_cache_layout(layout, 0);
  return DeviceStates::slot_bytes(layout);
}

std::unique_ptr<KvCache> CudaBackend::make_kv_cache(const CacheLayout& layout, int32_t num_blocks,
                                                    int32_t num_slots) {
  check_cache_layout(layout, num_blocks);
  check_num_slots(layout, num_slots);
  if (kv_has_scales(layout.dtype())) refuse(refused_.code_writes);
  const auto bytes =
      checked_mul(static_cast<uint64_t>(num_blocks) + 1, DeviceKvCache::block_bytes(layout));
  HEADRACE_CHECK(bytes.has_value(), num_blocks, " blocks");
  const auto state_bytes =
      checked_mul(static_cast<uint64_t>(num_slots), DeviceStates::slot_bytes(layout));
  HEADRACE_CHECK(state_bytes.has_value(), num_slots, " slots");
  Buffer blocks = memory_.allocate(*bytes), states;
  if (num_slots > 0) states = memory_.allocate(*state_bytes);
  return std::make_unique<DeviceKvCache>(layout, num_blocks, std::move(blocks), num_slots,
                                         std::move(states));
}

void CudaBackend::add_host_blocks(KvCache& cache, int32_t count) {
  context_.enter();
  dynamic_cast<DeviceKvCache&>(cache).add_host_blocks(context_, count);
  if (swaps_ == nullptr) swaps_ = std::make_unique<SwapStream>(context_);
}

void CudaBackend::add_host_slots(KvCache& cache, int32_t count) {
  context_.enter();
  dynamic_cast<DeviceKvCache&>(cache).add_host_slots(context_, count);
  if (swaps_ == nullptr) swaps_ = std::make_unique<SwapStream>(context_);
}

void CudaBackend::copy_blocks(KvCache& cache, std::span<const BlockCopy> copies) {
  context_.enter();
  HEADRACE_CHECK(swaps_ != nullptr);
  const Stream stream = swaps_->begin_copies(copies);
  dynamic_cast<DeviceKvCache&>(cache).copy_blocks(copies, stream);
  swaps_->end_copies();
}

void CudaBackend::reserve(const std::function<void()>& ops) {
  struct Reserving {
    bool& flag;
    explicit Reserving(bool& to) : flag(to) { flag = true; }
    ~Reserving() { flag = false; }
  } const reserving(reserving_);
  context_.enter();
  arena_.reserve(kAdapterListBytes);
  ops();
}

}  // namespace headrace::cuda
