#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace headrace {

/// A tensor in a mapped checkpoint file. `data` has no alignment.
struct CheckpointTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;
  size_t bytes = 0;
};

/// The weights' files in a folder by name, sorted: model.safetensors, or
/// model.safetensors.index.json and the shards it names, which need not be there, and those of
/// dense_folders(); none if the folder has neither of the former. Throws Error(kCorruptFile) for a
/// malformed index.
std::vector<std::string> checkpoint_files(const std::filesystem::path& folder);

/// Tells tensors of blocks that guess tokens from others.
struct MtpTensors {
  /// Blocks are layers from this number on, "model.layers.46....", as well. kNowhere: they aren't.
  int32_t first_layer = kNowhere;
  static constexpr int32_t kNowhere = -1;
  /// Also of "model.mtp_...", "ernie.mtp_..." and "mtp....".
  bool has(std::string_view name) const;
};

/// The safetensors files of a folder, memory-mapped: model.safetensors, or the shards that
/// model.safetensors.index.json names; and of each of dense_folders() its model.safetensors, whose
/// tensors have the folder and a slash before their names. Thread safe after construction.
class Checkpoint {
 public:
  /// Throws Error(kNotFound) when there are no weights and Error(kCorruptFile) naming file and
  /// fault for anything that breaks the format (see docs/reliability.md): header over 100 MB, not
  /// JSON, duplicate names, offsets out of range, overlapping or leaving gaps, shape x dtype that
  /// is not the byte count, index entries outside the folder, a file shorter than its header says.
  /// May wait for 50 ms if a file was just written, so that check_unchanged() misses no write.
  explicit Checkpoint(const std::filesystem::path& folder);
  /// The same with the tensors of an MTP block from another folder, which has the same rules,
  /// instead of those of this one. `mtp_folder` empty: this one's.
  Checkpoint(const std::filesystem::path& folder, const std::filesystem::path& mtp_folder,
             const MtpTensors& mtp);
  struct SingleFile {
    std::filesystem::path path;
  };
  /// One file of any name; throws likewise.
  explicit Checkpoint(SingleFile file);
  ~Checkpoint();

  /// Null if there is none of that name.
  const CheckpointTensor* find(std::string_view name) const;
  const std::vector<CheckpointTensor>& tensors() const;  ///< sorted by name

  /// Keeps the tensor's file mapped, and its pages for rows in any order.
  std::shared_ptr<void> keep_rows(const CheckpointTensor& tensor) const;
  /// Tells the kernel that these pages will not be used again.
  void drop_pages(const CheckpointTensor& tensor) const;
  /// Throws Error if a mapped file is not what was opened: kCorruptFile for another size,
  /// kInvalidState if it was written to or replaced. What was read before is that file's.
  void check_unchanged() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
