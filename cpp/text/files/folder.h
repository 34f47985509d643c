#pragma once

// The tokenizer of a model folder, whatever files it is in, or of a GGUF file.

#include <string>

#include "text/files/tokenizer_config.h"
#include "text/files/tokenizer_parts.h"

namespace headrace::text {

struct FolderTokenizer {
  std::string path;  ///< of the file that the parts are from
  TokenizerConfig config;
  TokenizerParts parts;
  /// The parts decide on their own what is put around a text: the configuration is in them.
  bool has_ends = false;
};

/// Reads tokenizer.json or else a vocabulary file, and the side files; of a path that is a .gguf
/// file, its metadata. Throws Error, which names the file: kNotFound if there is none.
FolderTokenizer read_tokenizer_folder(const std::string& folder);

}  // namespace headrace::text
