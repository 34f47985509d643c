#pragma once

// Small GGUF files for tests, which may break their rules.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "gguf/gguf_value.h"

namespace headrace::test {

/// A number, or a text behind its length, as files have them.
template <class T>
std::string gguf_bytes(T value) {
  std::string made(sizeof value, '\0');
  std::memcpy(made.data(), &value, sizeof value);
  return made;
}
inline std::string gguf_text(std::string_view value) {
  return gguf_bytes(uint64_t{value.size()}) + std::string(value);
}

/// Version 3, aligned to 32 bytes. Keys and tensors are in the order of the calls.
class GgufWriter {
 public:
  GgufWriter& put(std::string_view key, std::string_view value) {
    return entry(key, GgufType::kString, gguf_text(value));
  }
  GgufWriter& put(std::string_view key, const char* value) {
    return put(key, std::string_view(value));
  }
  GgufWriter& put(std::string_view key, bool value) {
    return entry(key, GgufType::kBool, std::string(1, value ? '\1' : '\0'));
  }
  template <class T>
    requires std::is_arithmetic_v<T>
  GgufWriter& put(std::string_view key, T value) {
    return entry(key, type_of<T>(), gguf_bytes(value));
  }
  template <class T>
  GgufWriter& put(std::string_view key, const std::vector<T>& values) {
    std::string body;
    if constexpr (std::is_arithmetic_v<T>) {
      body = gguf_bytes(static_cast<uint32_t>(type_of<T>())) + gguf_bytes(uint64_t{values.size()});
      for (const T value : values) body += gguf_bytes(value);
    } else {
      body = gguf_bytes(static_cast<uint32_t>(GgufType::kString)) +
             gguf_bytes(uint64_t{values.size()});
      for (const std::string_view value : values) body += gguf_text(value);
    }
    return entry(key, GgufType::kArray, body);
  }

  /// `shape` as PyTorch has it; `data` as it lies in the file.
  GgufWriter& tensor(std::string_view name, uint32_t type, const std::vector<int64_t>& shape,
                     std::string_view data) {
    tensors_ += gguf_text(name) + gguf_bytes(static_cast<uint32_t>(shape.size()));
    for (auto dim = shape.rbegin(); dim != shape.rend(); ++dim) tensors_ += gguf_bytes(*dim);
    tensors_ += gguf_bytes(type) + gguf_bytes(uint64_t{data_.size()});
    data_ += data;
    pad(&data_);
    ++num_tensors_;
    return *this;
  }

  std::string file() const {
    std::string made =
        "GGUF" + gguf_bytes(uint32_t{3}) + gguf_bytes(num_tensors_) + gguf_bytes(num_keys_);
    made += keys_ + tensors_;
    pad(&made);
    return made + data_;
  }

 private:
  static void pad(std::string* to) { to->resize((to->size() + 31) / 32 * 32); }

  template <class T>
  static constexpr GgufType type_of() {
    constexpr bool kSigned = std::is_signed_v<T>;
    if constexpr (std::is_floating_point_v<T>) {
      return sizeof(T) == 4 ? GgufType::kF32 : GgufType::kF64;
    } else {
      switch (sizeof(T)) {
        case 1:
          return kSigned ? GgufType::kI8 : GgufType::kU8;
        case 2:
          return kSigned ? GgufType::kI16 : GgufType::kU16;
        case 4:
          return kSigned ? GgufType::kI32 : GgufType::kU32;
        default:
          return kSigned ? GgufType::kI64 : GgufType::kU64;
      }
    }
  }

  GgufWriter& entry(std::string_view key, GgufType type, std::string_view body) {
    keys_ += gguf_text(key) + gguf_bytes(static_cast<uint32_t>(type)) + std::string(body);
    ++num_keys_;
    return *this;
  }

  std::string keys_, tensors_, data_;
  uint64_t num_keys_ = 0, num_tensors_ = 0;
};

}  // namespace headrace::test
