#include "headrace/pack.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>

#include "backend/cpu/cpu_backend.h"
#include "base/check.h"
#include "engine/devices/device_names.h"
#include "engine/load/load_model.h"
#include "engine/load/load_watch.h"
#include "engine/load/weights.h"
#include "headrace/version.h"
#include "model/checkpoint/checkpoint.h"
#include "model/load/list_sources.h"
#include "model/load/load_config.h"
#include "model/weights/weight_loader.h"

namespace headrace {

namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

void check_options(const ModelOptions& options) {
  internal::validate_model_options(options);
  if (options.dummy_weights || !options.packed_weights.empty()) {
    throw_error(ErrorCode::kInvalidArgument,
                "a packed file is made from a folder's own weights: leave dummy_weights and "
                "packed_weights out.");
  }
  if (!internal::mtp_folder(options).empty()) {
    throw_error(ErrorCode::kUnsupported, "speculative.model is ", options.speculative.model,
                ": a packed file holds the weights of one folder; leave it out, or put the MTP "
                "block's tensors into the model's.");
  }
}

void check_target(const fs::path& file, const fs::path& folder) {
  std::error_code ignored;
  if (file.empty() || !file.has_filename() || fs::is_directory(file, ignored)) {
    throw_error(ErrorCode::kInvalidArgument, "the packed file's name is ",
                file.empty() ? "empty" : file.string() + ", which is a folder",
                ": give the path of a file to write.");
  }
  std::vector<std::string> parts = checkpoint_files(folder);
  parts.emplace_back("config.json");
  for (const std::string& part : parts) {
    if (!fs::equivalent(file, folder / part, ignored)) continue;
    throw_error(ErrorCode::kInvalidArgument, file.string(),
                " is part of the model: choose another name for the packed file.");
  }
}

std::unique_ptr<Backend> make_backend(const ModelOptions& options, const ModelConfig& config,
                                      DType storage) {
  const std::string& device = options.devices.empty() ? options.device : options.devices.front();
  if (device.starts_with("cuda")) {
    throw_error(ErrorCode::kUnsupported, "packed files are for the CPU, but device is ", device,
                ": use cpu; a GPU loads the folder's own weights.");
  }
  auto backend = make_cpu_backend({.num_threads = options.num_threads, .isa = options.cpu_isa});
  backend->require({.storage = storage,
                    .kv_dtype = storage,
                    .head_dim = config.key_dim(),
                    .latent = config.latent.rank > 0});
  return backend;
}

}  // namespace

PackReport v0::pack_model(const ModelOptions& options, const std::string& file) {
  const auto start = steady_clock::now();
  check_options(options);
  check_target(file, options.path);
  internal::LoadWatch watch(options);
  watch.enter(LoadStage::kOpening);
  ModelConfig config = internal::read_model_config(options);
  internal::check_expert_parallel(options, config);
  internal::find_head(options.path, nullptr, config);
  PackedHeader header;
  header.written_by = str_cat("headrace ", version());
  header.storage = internal::storage_dtype(options, config, nullptr);
  header.quantization = internal::quantization_of(options, config, nullptr);
  header.num_ranks = internal::num_ranks(options);
  header.whole_experts = header.num_ranks > 1 && options.enable_expert_parallel;
  header.config = read_config_identity(options.path);
  const auto backend = make_backend(options, config, header.storage);
  const DeviceInfo device = backend->device_info();
  const Quantization quantization = on_device(header.quantization, device);

  const Checkpoint checkpoint(options.path);
  // It goes in for those who will use it.
  const auto is_mtp = [mtp = mtp_tensors(config)](const CheckpointTensor& tensor) {
    return mtp.has(tensor.name);
  };
  if (has_mtp(config) && std::ranges::any_of(checkpoint.tensors(), is_mtp)) config.uses_mtp = true;
  std::vector<ModelSources> ranks;
  for (int32_t rank = 0; rank < header.num_ranks; ++rank) {
    ranks.push_back(checkpoint_sources(config, checkpoint, quantization));
    share_sources({rank, header.num_ranks, header.whole_experts}, ranks.back());
  }
  header.layout = packed_layout(*backend, header.storage, ranks.front());
  header.source =
      identify_source(options.path, device.num_threads, [&watch](size_t) { watch.check(); });
  PackReport report;
  for (const ModelSources& sources : ranks) {
    for (const PackedTensor& tensor : list_packed_tensors(sources, *backend, header.storage)) {
      watch.expect(LoadStage::kWeights, tensor.bytes);
      ++report.num_tensors;
    }
  }
  watch.enter(LoadStage::kWeights);
  WeightLoader loader(*backend, &checkpoint, header.storage, 0.0f, &watch.checker());
  internal::WatchedReader reader(loader, watch);
  AtomicFile out(file);
  write_packed(out, header, ranks, reader, *backend);
  check_source_unmoved(header.source, options.path);
  checkpoint.check_unchanged();

  report.file = file;
  report.layout = header.layout;
  report.dtype = dtype_name(header.storage);
  report.isa = device.isa;
  report.file_bytes = out.size();
  out.commit();
  report.seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
  return report;
}

void v0::check_packed(const ModelOptions& options) {
  internal::validate_model_options(options);
  ModelConfig config = internal::read_model_config(options);
  internal::check_expert_parallel(options, config);
  const auto packed = internal::open_packed(options);
  if (packed == nullptr) {
    throw_error(ErrorCode::kInvalidArgument, "packed_weights is ",
                options.packed_weights.empty() ? "empty" : options.packed_weights,
                ": name the packed file to check.");
  }
  internal::find_head(options.path, packed.get(), config);
  const DType storage = internal::storage_dtype(options, config, packed.get());
  internal::quantization_of(options, config, packed.get());
  internal::LoadWatch watch(options);
  internal::check_packed_file(*packed, options, config, *make_backend(options, config, storage),
                              watch);
}

}  // namespace headrace
