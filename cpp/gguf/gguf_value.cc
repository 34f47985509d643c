#include "gguf/gguf_value.h"

#include <cstring>
#include <limits>

namespace headrace {

namespace {

template <class T>
T load(std::string_view bytes, uint64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <class Out, class Read>
std::optional<std::vector<Out>> all(uint64_t count, Read read) {
  std::vector<Out> out;
  out.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const auto value = read(i);
    if (!value) return std::nullopt;
    out.push_back(*value);
  }
  return out;
}

}  // namespace

uint64_t gguf_type_size(GgufType type) noexcept {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

std::optional<int64_t> GgufValue::integer_at(uint64_t i) const {
  switch (type_) {
    case GgufType::kU8:
    case GgufType::kBool:
      return load<uint8_t>(bytes_, i);
    case GgufType::kI8:
      return load<int8_t>(bytes_, i);
    case GgufType::kU16:
      return load<uint16_t>(bytes_, i);
    case GgufType::kI16:
      return load<int16_t>(bytes_, i);
    case GgufType::kU32:
      return load<uint32_t>(bytes_, i);
    case GgufType::kI32:
      return load<int32_t>(bytes_, i);
    case GgufType::kI64:
      return load<int64_t>(bytes_, i);
    case GgufType::kU64: {
      const auto value = load<uint64_t>(bytes_, i);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> GgufValue::number_at(uint64_t i) const {
  if (type_ == GgufType::kF32) return load<float>(bytes_, i);
  if (type_ == GgufType::kF64) return load<double>(bytes_, i);
  const auto integer = integer_at(i);
  if (!integer) return std::nullopt;
  return static_cast<double>(*integer);
}

std::optional<int64_t> GgufValue::integer() const {
  return is_array_ || count_ == 0 ? std::nullopt : integer_at(0);
}

std::optional<bool> GgufValue::boolean() const {
  if (type_ != GgufType::kBool) return std::nullopt;
  const auto value = integer();
  if (!value) return std::nullopt;
  return *value != 0;
}

std::optional<double> GgufValue::number() const {
  return is_array_ || count_ == 0 ? std::nullopt : number_at(0);
}

std::optional<std::string_view> GgufValue::text() const {
  if (is_array_) return std::nullopt;
  const auto found = texts();
  if (!found || found->empty()) return std::nullopt;
  return found->front();
}

std::optional<std::vector<int64_t>> GgufValue::integers() const {
  return all<int64_t>(count_, [this](uint64_t i) { return integer_at(i); });
}

std::optional<std::vector<double>> GgufValue::numbers() const {
  return all<double>(count_, [this](uint64_t i) { return number_at(i); });
}

std::optional<std::vector<std::string_view>> GgufValue::texts() const {
  if (type_ != GgufType::kString) return std::nullopt;
  uint64_t at = 0;
  return all<std::string_view>(count_, [&](uint64_t) -> std::optional<std::string_view> {
    uint64_t bytes;
    std::memcpy(&bytes, bytes_.data() + at, sizeof bytes);
    const std::string_view text = bytes_.substr(at + sizeof bytes, bytes);
    at += sizeof bytes + bytes;
    return text;
  });
}

}  // namespace headrace
