#include "model/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "model/json.h"
#include "model/mapped_file.h"
#include "model/safetensors.h"

namespace headrace {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr uint64_t kLengthBytes = 8;  // of the little-endian header length

std::string read_header(const MappedFile& file) {
  if (file.size() < kLengthBytes) {
    throw_error(ErrorCode::kCorruptFile, file.path(), " has ", file.size(),
                " bytes: too short for a safetensors file.");
  }
  uint8_t raw[kLengthBytes];
  file.read(0, raw, sizeof raw);
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) length |= static_cast<uint64_t>(raw[i]) << (8 * i);
  if (length > kMaxSafetensorsHeader) {
    throw_error(ErrorCode::kCorruptFile, file.path(), " claims a header of ", length,
                " bytes; at most ", kMaxSafetensorsHeader, " are accepted.");
  }
  if (length > file.size() - kLengthBytes) {
    throw_error(ErrorCode::kCorruptFile, file.path(), " has ", file.size(),
                " bytes, fewer than its header of ", length,
                " bytes needs: the file is cut short. Download it again.");
  }
  std::string header(length, '\0');
  file.read(kLengthBytes, header.data(), header.size());
  return header;
}

std::vector<CheckpointTensor> read_tensors(const MappedFile& file) {
  const std::string header = read_header(file);
  const uint64_t data_begin = kLengthBytes + header.size();
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
  std::vector<std::unique_ptr<MappedFile>> files;
  std::vector<CheckpointTensor> tensors;  // sorted by name

  void open_single(const fs::path& path) {
    files.push_back(std::make_unique<MappedFile>(path));
    tensors = read_tensors(*files.back());
  }

  void open_sharded(const fs::path& folder) {
    const MappedFile index(folder / kIndexFile);
    constexpr uint64_t kMaxIndex = 64u << 20;
    if (index.size() > kMaxIndex) {
      throw_error(ErrorCode::kCorruptFile, index.path(), " has ", index.size(), " bytes; at most ",
                  kMaxIndex, " are accepted.");
    }
    std::string text(index.size(), '\0');
    index.read(0, text.data(), text.size());
    auto missing = parse_safetensors_index(text, index.path());

    std::set<std::string> shards;
    for (const auto& [tensor, shard] : missing) shards.insert(shard);
    for (const std::string& shard : shards) {
      files.push_back(std::make_unique<MappedFile>(folder / shard));
      for (CheckpointTensor& tensor : read_tensors(*files.back())) {
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
      throw_error(ErrorCode::kCorruptFile, index.path(), ": tensor ", in_quotes(tensor),
                  " is not in ", in_quotes(shard), ", where the index says it is.");
    }
  }

  const MappedFile& file_of(const CheckpointTensor& tensor) const {
    for (const auto& file : files) {
      if (file->contains(tensor.data)) return *file;
    }
    HEADRACE_CHECK(false, "tensor ", tensor.name, " is not of this checkpoint");
    return *files.front();
  }
};

Checkpoint::Checkpoint(const fs::path& folder) : impl_(std::make_unique<Impl>()) {
  std::error_code ignored;
  if (fs::exists(folder / kSingleFile, ignored)) {
    impl_->open_single(folder / kSingleFile);
  } else if (fs::exists(folder / kIndexFile, ignored)) {
    impl_->open_sharded(folder);
  } else {
    throw_no_weights(folder);
  }
  std::sort(impl_->tensors.begin(), impl_->tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
}

Checkpoint::~Checkpoint() = default;

const CheckpointTensor* Checkpoint::find(std::string_view name) const {
  const auto found = std::lower_bound(
      impl_->tensors.begin(), impl_->tensors.end(), name,
      [](const CheckpointTensor& tensor, std::string_view key) { return tensor.name < key; });
  return found != impl_->tensors.end() && found->name == name ? &*found : nullptr;
}

const std::vector<CheckpointTensor>& Checkpoint::tensors() const { return impl_->tensors; }

void Checkpoint::drop_pages(const CheckpointTensor& tensor) const {
  if (tensor.bytes > 0) impl_->file_of(tensor).drop(tensor.data, tensor.bytes);
}

void Checkpoint::check_unchanged() const {
  for (const auto& file : impl_->files) file->check_size();
}

}  // namespace headrace
