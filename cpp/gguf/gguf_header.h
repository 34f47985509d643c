#pragma once

// What stands in front of the data of a GGUF file: its metadata, and which tensors it has.
// Source: the format's specification, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/block_type.h"
#include "gguf/gguf_value.h"

namespace headrace {

struct GgufTensor {
  std::string_view name;
  BlockType type = BlockType::kF32;
  /// As PyTorch has them: rows first, the inputs of a feature last. The file has them the other way
  /// round. At least one, none is 0; the last is a multiple of the type's block.
  std::vector<int64_t> shape;
  uint64_t begin = 0;  ///< in the file
  uint64_t bytes = 0;
};

/// Points into the file's bytes, which must outlive it.
struct GgufHeader {
  std::string origin;  ///< the file, for messages
  std::map<std::string_view, GgufValue> values;
  std::vector<GgufTensor> tensors;  ///< in the order of their bytes

  /// Null if there is no such key.
  const GgufValue* find(std::string_view key) const;
  // A key's value; `otherwise` where the file leaves it out. Throw Error(kCorruptFile) naming the
  // key where it is of another kind or out of range.
  int64_t integer(std::string_view key, int64_t otherwise) const;
  double number(std::string_view key, double otherwise) const;
  bool boolean(std::string_view key, bool otherwise) const;
  std::string text(std::string_view key, std::string_view otherwise) const;

  /// Throws Error(kCorruptFile): the file, the key and what is wrong with it.
  [[noreturn]] void fail(std::string_view key, const std::string& fault) const;

 private:
  template <class T>
  T read(std::string_view key, T otherwise, std::optional<T> (GgufValue::*as)() const,
         const char* fault) const;
};

/// Whether a file that begins so is of this format.
bool is_gguf(std::string_view bytes);

/// Of a whole file. Throws Error: kCorruptFile for what breaks the format, kUnsupported for a
/// version other than 2 and 3, for files of the other endianness and for types that aren't read.
/// Takes memory by what the file holds, not by what it says: at most about 16 times its header.
GgufHeader parse_gguf(std::string_view file, const std::string& origin);

}  // namespace headrace
