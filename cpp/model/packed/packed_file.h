#pragma once

// Packed files: a model's weights as a backend lays them out, ready to be mapped.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/contract/backend.h"
#include "base/mapped_file.h"
#include "model/packed/atomic_file.h"
#include "model/packed/packed_header.h"
#include "model/sources/model_sources.h"
#include "model/weights/weight_reader.h"

namespace headrace {

/// Backend::weight_layout of all weights of a model.
std::string packed_layout(const Backend& backend, DType storage, const ModelSources& sources);

/// How a file calls a weight of that name, of a rank its part: "layers.3.qkv", or
/// "layers.3.qkv.rank.1".
std::string packed_name(const std::string& name, const RankPlace& rank);

/// The tensors of a file with these weights, in their order, hashes not yet known. Of several
/// ranks' they follow each other.
std::vector<PackedTensor> list_packed_tensors(const ModelSources& sources, const Backend& backend,
                                              DType storage);

/// An open packed file. Thread safe after construction.
class PackedFile {
 public:
  /// Reads the header. Throws Error: kNotFound, kIo, kCorruptFile, kUnsupported (no packed file, or
  /// of another version).
  explicit PackedFile(const std::filesystem::path& path);

  const std::string& path() const noexcept { return file_->path(); }
  uint64_t bytes() const noexcept { return file_->size(); }
  const PackedHeader& header() const noexcept { return header_; }

  /// Throws Error(kInvalidState) naming the first key that differs unless the file was packed with
  /// this config.json, and for a folder that holds other weights than it was packed from
  /// (source_identity.h).
  /// `before_piece`: see hash_source; likewise below.
  void check_identity(const std::filesystem::path& folder, int32_t threads,
                      const std::function<void(size_t)>& before_piece = {}) const;
  /// Gives the matrices of a checkpoint that came quantized the formats that the header has.
  /// `sources` are not shared yet; `rank` is who will have a part of them.
  void set_formats(ModelSources& sources, const RankPlace& rank = {}) const;
  /// Throws Error(kUnsupported) unless the backend lays weights out as the file does, and
  /// Error(kCorruptFile) unless its tensors are exactly those of `ranks`, each one's sources.
  void check_layout(std::span<const ModelSources> ranks, const Backend& backend) const;
  /// Reads the whole file, on `threads` threads. Throws Error(kCorruptFile) naming the first tensor
  /// that is not what was written.
  void check_contents(int32_t threads, const std::function<void(size_t)>& before_piece = {}) const;

 private:
  friend class PackedReader;
  struct Range {
    const std::byte* data;
    uint64_t bytes;  ///< padded
  };

  std::shared_ptr<MappedFile> file_;
  PackedHeader header_;
  std::map<std::string, Range, std::less<>> ranges_;
};

/// Weights, or a rank's, from a packed file that was checked: mapped, or copied into the backend's
/// memory.
class PackedReader final : public WeightReader {
 public:
  PackedReader(Backend& backend, const PackedFile& file, bool copy, const RankPlace& rank = {})
      : backend_(backend), file_(file), copy_(copy), rank_(rank) {}

  std::unique_ptr<PackedWeight> matrix(const MatrixSource& source) override;
  DeviceVector vector(const VectorSource& source) override;
  size_t adopted_bytes() const override { return adopted_bytes_; }

 private:
  Backend::Buffer contents(const std::string& name, size_t bytes);

  Backend& backend_;
  const PackedFile& file_;
  bool copy_;
  RankPlace rank_;
  size_t adopted_bytes_ = 0;
};

/// Appends a whole packed file to `file`, which is empty, with one weight in memory at a time.
/// `header` has its fields but for the tensors, which are listed and hashed here. Throws what
/// the reader and the file throw. `ranks`: of each rank its sources, or those of the one device.
void write_packed(AtomicFile& file, PackedHeader header, std::span<const ModelSources> ranks,
                  WeightReader& reader, Backend& backend);

/// config.json of a folder as PackedHeader::config has it. Throws Error: kNotFound, kIo,
/// kCorruptFile.
std::string read_config_identity(const std::filesystem::path& folder);

}  // namespace headrace
