#include "model/checkpoint/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/mapped_file.h"
#include "model/checkpoint/dense_folders.h"
#include "model/checkpoint/safetensors.h"
#include "model/json/json.h"

namespace headrace {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

/// Tensor -> shard.
std::map<std::string, std::string> read_index(const fs::path& folder) {
  constexpr uint64_t kMaxIndex = 64u << 20;
  const fs::path index = folder / kIndexFile;
  return parse_safetensors_index(read_small_file(index, kMaxIndex), index.string());
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::vector<CheckpointTensor> read_tensors(const MappedFile& file) {
  const std::string header = read_safetensors_header(file);
  const uint64_t data_begin = kSafetensorsLengthBytes + header.size();
  const auto entries = parse_safetensors_header(header, file.size() - data_begin, file.path());
  std::vector<CheckpointTensor> tensors;
  tensors.reserve(entries.size());
  for (const SafetensorsEntry& entry : entries) {
    tensors.push_back({entry.name, entry.dtype, entry.shape, file.data() + data_begin + entry.begin,
                       entry.end - entry.begin});
  }
  return tensors;
}

[[noreturn]] void throw_no_weights(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    throw_error(ErrorCode::kNotFound, folder.string(), " is not a folder.");
  }
  throw_error(ErrorCode::kNotFound, folder.string(), " holds neither ", kSingleFile, " nor ",
              kIndexFile, ". Other formats (.bin, .pdparams) are not read: convert the weights.");
}

}  // namespace

struct Checkpoint::Impl {
  std::vector<std::shared_ptr<MappedFile>> files;
  std::vector<CheckpointTensor> tensors;  // sorted by name

  void open_single(const fs::path& path) { tensors = read_tensors(open(path)); }

  void open_model(const fs::path& folder) {
    open_folder(folder);
    for (const std::string& dense : dense_folders(folder)) {
      for (CheckpointTensor& tensor : read_tensors(open(folder / dense / kSingleFile))) {
        tensor.name = dense + "/" + tensor.name;
        tensors.push_back(std::move(tensor));
      }
    }
  }

  void open_folder(const fs::path& folder) {
    if (is_there(folder / kSingleFile)) {
      open_single(folder / kSingleFile);
    } else if (is_there(folder / kIndexFile)) {
      open_sharded(folder);
    } else {
      throw_no_weights(folder);
    }
  }

  void take_mtp(Impl other, const MtpTensors& mtp) {
    const auto is_mtp = [&mtp](const CheckpointTensor& tensor) { return mtp.has(tensor.name); };
    std::erase_if(tensors, is_mtp);
    std::copy_if(std::make_move_iterator(other.tensors.begin()),
                 std::make_move_iterator(other.tensors.end()), std::back_inserter(tensors), is_mtp);
    std::move(other.files.begin(), other.files.end(), std::back_inserter(files));
  }

  /// Before anything is read that must be of one state of the files.
  MappedFile& open(const fs::path& path) {
    files.push_back(std::make_shared<MappedFile>(path));
    files.back()->settle();
    return *files.back();
  }

  void sort() {
    std::sort(tensors.begin(), tensors.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
  }

  void open_sharded(const fs::path& folder) {
    auto missing = read_index(folder);
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : missing) shards.insert(shard);
    for (const std::string& shard : shards) {
      for (CheckpointTensor& tensor : read_tensors(open(folder / shard))) {
        const auto listed = missing.find(tensor.name);
        if (listed == missing.end() || listed->second != shard) {
          throw_error(ErrorCode::kCorruptFile, files.back()->path(), ": tensor ",
                      in_quotes(tensor.name), " is not what ", kIndexFile,
                      " says is in this file.");
        }
        missing.erase(listed);
        tensors.push_back(std::move(tensor));
      }
    }
    if (!missing.empty()) {
      const auto& [tensor, shard] = *missing.begin();
      throw_error(ErrorCode::kCorruptFile, (folder / kIndexFile).string(), ": tensor ",
                  in_quotes(tensor), " is not in ", in_quotes(shard),
                  ", where the index says it is.");
    }
  }

  const std::shared_ptr<MappedFile>& file_of(const CheckpointTensor& tensor) const {
    for (const auto& file : files) {
      if (file->contains(tensor.data)) return file;
    }
    HEADRACE_CHECK(false, "tensor ", tensor.name, " is not of this checkpoint");
    return files.front();
  }
};

std::vector<std::string> checkpoint_files(const fs::path& folder) {
  std::set<std::string> files;
  if (is_there(folder / kSingleFile)) {
    files.insert(kSingleFile);
  } else if (is_there(folder / kIndexFile)) {
    files.insert(kIndexFile);
    for (const auto& [tensor, shard] : read_index(folder)) files.insert(shard);
  } else {
    return {};
  }
  for (const std::string& dense : dense_folders(folder)) files.insert(dense + "/" + kSingleFile);
  return {files.begin(), files.end()};
}

bool MtpTensors::has(std::string_view name) const {
  constexpr std::string_view kModel = "model.", kLayers = "layers.";
  if (name.starts_with("model.mtp_") || name.starts_with("ernie.mtp_") ||
      name.starts_with("mtp.")) {
    return true;
  }
  if (first_layer == kNowhere) return false;
  if (name.starts_with(kModel)) name.remove_prefix(kModel.size());
  if (!name.starts_with(kLayers)) return false;
  name.remove_prefix(kLayers.size());
  int32_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  return error == std::errc() && end != name.data() + name.size() && *end == '.' &&
         layer >= first_layer;
}

Checkpoint::Checkpoint(const fs::path& folder) : Checkpoint(folder, fs::path(), {}) {}

Checkpoint::Checkpoint(const fs::path& folder, const fs::path& mtp_folder, const MtpTensors& mtp)
    : impl_(std::make_unique<Impl>()) {
  impl_->open_model(folder);
  if (!mtp_folder.empty()) {
    Impl other;
    other.open_folder(mtp_folder);
    impl_->take_mtp(std::move(other), mtp);
  }
  impl_->sort();
}

Checkpoint::Checkpoint(SingleFile file) : impl_(std::make_unique<Impl>()) {
  impl_->open_single(file.path);
  impl_->sort();
}

Checkpoint::~Checkpoint() = default;

const CheckpointTensor* Checkpoint::find(std::string_view name) const {
  const auto found = std::lower_bound(
      impl_->tensors.begin(), impl_->tensors.end(), name,
      [](const CheckpointTensor& tensor, std::string_view key) { return tensor.name < key; });
  return found != impl_->tensors.end() && found->name == name ? &*found : nullptr;
}

const std::vector<CheckpointTensor>& Checkpoint::tensors() const { return impl_->tensors; }

std::shared_ptr<void> Checkpoint::keep_rows(const CheckpointTensor& tensor) const {
  const std::shared_ptr<MappedFile>& file = impl_->file_of(tensor);
  file->expect_rows(tensor.data, tensor.bytes);
  return file;
}

void Checkpoint::drop_pages(const CheckpointTensor& tensor) const {
  if (tensor.bytes > 0) impl_->file_of(tensor)->drop(tensor.data, tensor.bytes);
}

void Checkpoint::check_unchanged() const {
  for (const auto& file : impl_->files) file->check_unchanged();
}

}  // namespace headrace
