#include "cpp/model/checkpoint_files.h"

#include <stdlib.h>

#include <cstring>
#include <stdexcept>

#include "cpp/model/test_json.h"

namespace headrace {

namespace {

template <class T>
void append(std::string& out, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof raw);
  out.append(raw, sizeof raw);
}

const char* stored_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kF64:
      return "F64";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kI8:
      return "I8";
    case DType::kU8:
      return "U8";
    case DType::kF8E4M3:
      return "F8_E4M3";
    default:
      throw std::logic_error("a dtype that no test writes");
  }
}

}  // namespace

TempFolder::TempFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "headrace-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make " + pattern);
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void TempFolder::write(const std::string& name, const std::string& bytes) const {
  std::ofstream out(path_ / name, std::ios::binary);
  out << bytes;
  if (!out.flush()) throw std::runtime_error("cannot write " + name);
}

std::string safetensors_bytes(const std::string& header, const std::string& data) {
  std::string out;
  append(out, static_cast<uint64_t>(header.size()));
  return out + header + data;
}

std::string safetensors_file(const std::vector<TensorToWrite>& tensors) {
  Json header = Json::object();
  std::string data;
  for (const TensorToWrite& tensor : tensors) {
    header[tensor.name] = {{"dtype", stored_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  return safetensors_bytes(header.dump(), data);
}

std::string encode(const std::vector<float>& values, DType dtype) {
  std::string out;
  for (const float value : values) {
    if (dtype == DType::kF32) append(out, value);
    if (dtype == DType::kBF16) append(out, f32_to_bf16(value));
    if (dtype == DType::kF16) append(out, f32_to_f16(value));
    if (dtype == DType::kF64) append(out, static_cast<double>(value));
  }
  return out;
}

}  // namespace headrace
