#pragma once

// The texts of the safetensors format: a file's header and a folder's index.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace headrace {

class MappedFile;

/// Longest header accepted, as in the format's own reader.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;
/// Bytes of the little-endian header length that a file begins with.
inline constexpr uint64_t kSafetensorsLengthBytes = 8;

/// The header of a file, without its length; data lies behind both. Throws Error(kCorruptFile) for
/// a file that is shorter than it says and for a header that is too long.
std::string read_safetensors_header(const MappedFile& file);

/// The texts of a header's __metadata__.
using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  ///< bytes [begin, end) behind the header
};

/// Entries of a header, in order of their bytes, which cover [0, data_bytes) without gap or
/// overlap. Throws Error(kCorruptFile) naming `origin`, tensor and fault; Error(kUnsupported) for
/// an element type of the format that this build has no use for (float8 and others).
std::vector<SafetensorsEntry> parse_safetensors_header(std::string_view header, uint64_t data_bytes,
                                                       const std::string& origin,
                                                       SafetensorsMetadata* metadata = nullptr);

/// Tensor name -> file name of model.safetensors.index.json. Each file name is plain: it names
/// something directly inside the folder. Throws Error(kCorruptFile).
std::map<std::string, std::string> parse_safetensors_index(std::string_view text,
                                                           const std::string& origin);

}  // namespace headrace
