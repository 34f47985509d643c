#pragma once

// Reading files of a model folder, which may hold anything under their names.

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "text/json/value.h"

namespace headrace::text {

inline constexpr size_t kMaxTokenizerBytes = size_t{128} << 20;
inline constexpr size_t kMaxSideFileBytes = size_t{16} << 20;

class FileBytes {
 public:
  FileBytes(std::unique_ptr<char[]> data, size_t size) : data_(std::move(data)), size_(size) {}
  std::string_view view() const noexcept { return {data_.get(), size_}; }

 private:
  std::unique_ptr<char[]> data_;
  size_t size_;
};

/// A whole file; none if there is none of that name. Throws Error, which names it: kCorruptFile for
/// what is no file, kLimitExceeded for more than `limit` bytes, kIo.
std::optional<FileBytes> read_file(const std::string& path, size_t limit);

/// A JSON object from a file of at most kMaxSideFileBytes; an empty one if there is none.
json::Value read_json_file(const std::string& path);

/// Calls it; an error gets the file's name in front, and is cut if it quotes much of the file.
void naming_file(const std::string& path, const std::function<void()>& call);

/// Is there anything of that name, be it a link to nothing?
bool is_there(const std::string& path) noexcept;

}  // namespace headrace::text
