#include "model/checkpoint/source_identity.h"

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "base/content_hash.h"
#include "base/mapped_file.h"
#include "model/checkpoint/checkpoint.h"
#include "model/json/json.h"

namespace headrace {

namespace {

namespace fs = std::filesystem;

/// All but the hash.
SourceFile stat_file(const fs::path& folder, const std::string& name) {
  const FileStamp stamp = stamp_file(folder / name);
  return {.name = name,
          .bytes = stamp.bytes,
          .modified_ns = stamp.modified_ns,
          .changed_ns = stamp.changed_ns};
}

bool same_times(const SourceFile& a, const SourceFile& b) {
  return a.bytes == b.bytes && a.modified_ns == b.modified_ns && a.changed_ns == b.changed_ns;
}

uint64_t hash_file(const fs::path& path, int32_t threads,
                   const std::function<void(size_t)>& before_piece = {}) {
  const MappedFile file(path);
  const uint64_t size = file.size();
  const auto hash_piece = [&](const HashPiece& piece) {
    if (before_piece) before_piece(piece.bytes);
    const auto data = std::make_unique_for_overwrite<char[]>(piece.bytes);
    file.read(piece.offset, data.get(), piece.bytes);
    return content_hash(data.get(), piece.bytes);
  };
  return parallel_hash({&size, 1}, threads, hash_piece).front();
}

template <class... Parts>
[[noreturn]] void refuse_stale(const std::string& packed, const Parts&... parts) {
  throw_error(ErrorCode::kInvalidState, packed, " is stale: ", parts...,
              ". Pack the model again, or load it without packed weights.");
}

}  // namespace

std::vector<SourceFile> stat_source(const fs::path& folder) {
  std::vector<SourceFile> files;
  for (const std::string& name : checkpoint_files(folder)) {
    files.push_back(stat_file(folder, name));
    outwait_clock_tick({.changed_ns = files.back().changed_ns});
  }
  return files;
}

void hash_source(std::vector<SourceFile>& files, const fs::path& folder, int32_t threads,
                 const std::function<void(size_t)>& before_piece) {
  for (SourceFile& file : files) {
    file.hash = hash_file(folder / file.name, threads, before_piece);
  }
}

std::vector<SourceFile> identify_source(const fs::path& folder, int32_t threads,
                                        const std::function<void(size_t)>& before_piece) {
  std::vector<SourceFile> files = stat_source(folder);
  hash_source(files, folder, threads, before_piece);
  check_source_unmoved(files, folder);
  return files;
}

bool same_source_times(const std::vector<SourceFile>& a, const std::vector<SourceFile>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const SourceFile& one, const SourceFile& other) {
                      return one.name == other.name && same_times(one, other);
                    });
}

void check_source_unmoved(const std::vector<SourceFile>& files, const fs::path& folder) {
  for (const SourceFile& file : files) {
    if (same_times(file, stat_file(folder, file.name))) continue;
    throw_error(ErrorCode::kInvalidState, (folder / file.name).string(),
                " changed while it was being packed: pack it again.");
  }
}

void check_source(const std::vector<SourceFile>& files, const fs::path& folder, int32_t threads,
                  const std::string& packed, const std::function<void(size_t)>& before_piece) {
  const std::vector<std::string> names = checkpoint_files(folder);
  if (names.empty()) return;
  for (const SourceFile& file : files) {
    if (std::find(names.begin(), names.end(), file.name) == names.end()) {
      refuse_stale(packed, "it was made from ", in_quotes(file.name),
                   ", which is not among the weights in ", folder.string());
    }
  }
  for (const std::string& name : names) {
    const auto packed_from = std::find_if(
        files.begin(), files.end(), [&name](const SourceFile& file) { return file.name == name; });
    const std::string path = (folder / name).string();
    if (packed_from == files.end()) refuse_stale(packed, "it was not made from ", path);
    const SourceFile now = stat_file(folder, name);
    if (same_times(now, *packed_from)) continue;
    if (now.bytes != packed_from->bytes) {
      refuse_stale(packed, path, " has ", now.bytes, " bytes and had ", packed_from->bytes,
                   " when it was packed");
    }
    if (hash_file(folder / name, threads, before_piece) != packed_from->hash) {
      refuse_stale(packed, path, " has changed since it was packed");
    }
  }
}

}  // namespace headrace
