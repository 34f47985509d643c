#pragma once

// packed_weights="auto": packed files that the engine makes and finds by itself.

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "backend/contract/backend.h"
#include "base/log.h"
#include "engine/cache/cache_writer.h"
#include "headrace/options.h"
#include "model/config/model_config.h"
#include "model/decoder/decoder.h"
#include "model/packed/packed_file.h"
#include "model/weights/weight_reader.h"

namespace headrace::internal {

/// ModelOptions::packed_weights that asks for the cache.
inline constexpr const char* kCachedWeights = "auto";

/// A model about to be loaded. The references outlive what is made of it.
struct CachedModel {
  const std::string& name;
  const ModelOptions& options;
  const ModelConfig& config;
  const DecoderOptions& shape;
  Backend& backend;
  Logger& logger;
};

/// Remembers where the weights lie that another reader reads.
class RecordingReader final : public WeightReader {
 public:
  explicit RecordingReader(WeightReader& reader) : reader_(reader) {}

  std::unique_ptr<PackedWeight> matrix(const MatrixSource& source) override;
  DeviceVector vector(const VectorSource& source) override;
  size_t adopted_bytes() const override { return reader_.adopted_bytes(); }

  /// REQUIRES: a tensor that was read.
  CacheEntry::Tensor find(const std::string& name) const { return tensors_.at(name); }

 private:
  WeightReader& reader_;
  std::map<std::string, CacheEntry::Tensor> tensors_;
};

/// The entry of one model in the cache folder: a file whose name says which checkpoint it was made
/// from, how, by which version and for which kernels.
class WeightCache {
 public:
  /// Throws Error as cache_folder() does; kNotFound, kIo, kCorruptFile for a folder without
  /// weights.
  explicit WeightCache(const CachedModel& model);

  /// Throws Error unless a packed file is whole and fits the model; kCancelled ends the load.
  using Check = std::function<void(const PackedFile&)>;
  /// The entry, if `check` is content with it; null if there is none, which the log explains.
  std::unique_ptr<PackedFile> find(const Check& check) const;

  /// Of the weights that were read from the checkpoint since the cache was made. Null where there
  /// is no use in writing them.
  std::unique_ptr<CacheWriter> writer(const ModelSources& sources,
                                      const RecordingReader& weights) const;

 private:
  std::unique_ptr<PackedFile> open(const Check& check) const;

  CachedModel model_;
  std::filesystem::path folder_, file_;
  std::string family_;
  PackedHeader header_;  // but for layout and tensors
  bool trusted_ = true;
};

}  // namespace headrace::internal
