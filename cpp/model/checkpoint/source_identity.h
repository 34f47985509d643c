#pragma once

// Which files a packed file was made from, so that it is never used for others.
//
// The guarantee: a file whose size, modification time and status-change time are as they were holds
// what it held, since every write moves the status-change time, which no program can set. Any other
// file is read whole and compared by its content hash, so that a folder that was merely copied or
// touched passes, and one that was changed does not.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace headrace {

struct SourceFile {
  std::string name;         ///< in its folder
  uint64_t bytes = 0;       ///< size
  int64_t modified_ns = 0;  ///< since 1970
  int64_t changed_ns = 0;   ///< of the inode (st_ctim), likewise
  uint64_t hash = 0;        ///< parallel_hash of the whole file
};

/// The files of a folder's weights (checkpoint_files), not yet hashed. May wait for 50 ms, so that
/// a later write cannot leave the times as they are. Throws Error: kNotFound, kIo, kCorruptFile.
std::vector<SourceFile> stat_source(const std::filesystem::path& folder);

/// Reads them whole to set their hashes, on `threads` threads. `before_piece`, called by them with
/// the bytes they are about to read, may throw to end it. Throws Error: kNotFound, kIo.
void hash_source(std::vector<SourceFile>& files, const std::filesystem::path& folder,
                 int32_t threads, const std::function<void(size_t)>& before_piece = {});

/// The files of a folder's weights (checkpoint_files), hashed on `threads` threads. May wait for
/// 50 ms, so that a later write cannot leave the times as they are. Throws Error: kNotFound, kIo,
/// kCorruptFile.
std::vector<SourceFile> identify_source(const std::filesystem::path& folder, int32_t threads,
                                        const std::function<void(size_t)>& before_piece = {});

/// Whether both are the same files, of the same sizes and times.
bool same_source_times(const std::vector<SourceFile>& a, const std::vector<SourceFile>& b);

/// Throws Error(kInvalidState) if one of the files has other sizes or times than it had.
void check_source_unmoved(const std::vector<SourceFile>& files,
                          const std::filesystem::path& folder);

/// Throws Error(kInvalidState) naming `packed`, the file and the remedy if `folder` holds weights
/// other than `files`. Nothing to check if it holds none.
void check_source(const std::vector<SourceFile>& files, const std::filesystem::path& folder,
                  int32_t threads, const std::string& packed,
                  const std::function<void(size_t)>& before_piece = {});

}  // namespace headrace
