#include "engine/cache/weight_cache.h"

#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/content_hash.h"
#include "engine/cache/cache_folder.h"
#include "headrace/version.h"
#include "model/config/quantization.h"
#include "model/load/list_sources.h"
#include "model/sources/model_sources.h"

namespace headrace::internal {

namespace fs = std::filesystem;

namespace {

std::string text_hash(const std::string& text) {
  return hash_text(content_hash(text.data(), text.size()));
}

std::string canonical(const std::string& folder) {
  std::error_code error;
  const fs::path path = fs::canonical(folder, error);
  return error ? folder : path.string();
}

}  // namespace

WeightCache::WeightCache(const CachedModel& model) : model_(model), folder_(cache_folder()) {
  header_.written_by = str_cat("headrace ", version());
  header_.storage = model.shape.storage;
  header_.quantization = model.shape.quantization;
  header_.config = read_config_identity(model.options.path);
  header_.source = stat_source(model.options.path);
  // The layout of what the config says, which need not be wholly that of the checkpoint.
  const std::string layout =
      packed_layout(model.backend, header_.storage,
                    list_sources(model.config, likely_naming(model.config), header_.quantization));
  family_ = text_hash(canonical(model.options.path));
  const std::string key = str_cat(
      header_.written_by, "\n", kPackedVersion, "\n", layout, "\n", dtype_name(header_.storage),
      "\n", quantization_name(header_.quantization), "\n", header_.quantization.group_size);
  file_ = folder_ / str_cat(family_, "-", text_hash(key), ".headrace");
  for (const fs::path& path : {folder_, file_}) {
    const std::string why = distrust(path);
    if (why.empty()) continue;
    trusted_ = false;
    model_.logger.log(LogLevel::kWarning, "model '", model_.name,
                      "': the cache is not used: ", path.string(), " ", why,
                      ", so that what it holds may not be this user's: make it so that only this "
                      "user can write to it, or set HEADRACE_CACHE to another folder");
  }
}

std::unique_ptr<PackedFile> WeightCache::open(const Check& check) const {
  auto packed = std::make_unique<PackedFile>(file_);
  const PackedHeader& header = packed->header();
  const auto asked = [](const Quantization& quantization) {
    return std::pair(quantization_name(quantization), quantization.group_size);
  };
  if (header.storage != header_.storage ||
      asked(header.quantization) != asked(header_.quantization) ||
      header.written_by != header_.written_by) {
    throw_error(ErrorCode::kInvalidState, "it is another model's.");
  }
  // Where times have changed and nothing else, a new entry saves reading it all every time.
  if (!same_source_times(header.source, header_.source)) {
    throw_error(ErrorCode::kInvalidState, "the checkpoint has changed since it was written.");
  }
  check(*packed);
  return packed;
}

std::unique_ptr<PackedFile> WeightCache::find(const Check& check) const {
  std::error_code ignored;
  if (!trusted_) return nullptr;
  if (!fs::exists(file_, ignored)) {
    model_.logger.log(LogLevel::kInfo, "model '", model_.name,
                      "': its weights are not in the cache yet: ", file_.string());
    return nullptr;
  }
  try {
    auto packed = open(check);
    model_.logger.log(LogLevel::kInfo, "model '", model_.name,
                      "': its weights are mapped from the cache: ", file_.string());
    return packed;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCancelled) throw;
    model_.logger.log(LogLevel::kInfo, "model '", model_.name, "': ", file_.string(),
                      " in the cache is not used, and will be written again: ", error.what());
    return nullptr;
  }
}

std::unique_ptr<CacheWriter> WeightCache::writer(const ModelSources& sources,
                                                 const RecordingReader& weights) const {
  if (!trusted_) return nullptr;
  CacheEntry entry{model_.name, model_.options.path, file_, family_, header_, {}};
  entry.header.layout = packed_layout(model_.backend, header_.storage, sources);
  entry.header.tensors = list_packed_tensors(sources, model_.backend, header_.storage);
  for (const PackedTensor& tensor : entry.header.tensors) {
    entry.contents.push_back(weights.find(tensor.name));
  }
  return std::make_unique<CacheWriter>(std::move(entry), model_.logger);
}

std::unique_ptr<PackedWeight> RecordingReader::matrix(const MatrixSource& source) {
  auto weight = reader_.matrix(source);
  if (weight != nullptr) tensors_[source.name] = {weight->data(), weight->bytes()};
  return weight;
}

DeviceVector RecordingReader::vector(const VectorSource& source) {
  DeviceVector vector = reader_.vector(source);
  if (!source.empty()) tensors_[source.name] = {vector.view.data, vector.bytes()};
  return vector;
}

}  // namespace headrace::internal
