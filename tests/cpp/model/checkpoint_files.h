#pragma once

// Writes safetensors files for tests, well formed or not.

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "tensor/dtype.h"

namespace headrace {

/// A new folder under the system's temporary one, removed with this object.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& bytes) const;

 private:
  std::filesystem::path path_;
};

struct TensorToWrite {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::string bytes;
};

/// Header length, header, data: no check of whether they fit together.
std::string safetensors_bytes(const std::string& header, const std::string& data);

/// A well-formed file of these tensors.
std::string safetensors_file(const std::vector<TensorToWrite>& tensors);

/// `values` in the given dtype (kF32, kBF16, kF16 or kF64).
std::string encode(const std::vector<float>& values, DType dtype);

}  // namespace headrace
