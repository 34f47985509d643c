#pragma once

// A GGUF file that is given in place of a folder.

#include <string>

#include "base/mapped_file.h"
#include "gguf/gguf_header.h"

namespace headrace::text {

/// Is it a file, and named like one of that format?
bool is_gguf_path(const std::string& path);

/// Open, with its header read. Throws as MappedFile and parse_gguf.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path)
      : file_(path), header_(parse_gguf({file_.data(), file_.size()}, path)) {}
  const GgufHeader& header() const noexcept { return header_; }

 private:
  MappedFile file_;
  GgufHeader header_;
};

}  // namespace headrace::text
