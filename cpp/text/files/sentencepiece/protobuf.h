#pragma once

// Messages of protocol buffers, field by field, without knowing their schema.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace headrace::text {

struct ProtobufField {
  enum class Wire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  uint32_t number = 0;
  Wire wire = Wire::kVarint;
  uint64_t value = 0;      ///< of all but kBytes
  std::string_view bytes;  ///< of kBytes: of the message's own data
};

/// Reads a message within its data, which must outlive it.
class ProtobufReader {
 public:
  /// offset: of the data in the file, which errors name places of.
  explicit ProtobufReader(std::string_view data, size_t offset = 0)
      : data_(data), offset_(offset) {}

  /// False behind the last field. Throws Error(kCorruptFile) that names the place.
  bool next(ProtobufField* field);
  /// A message that is a field of this one.
  ProtobufReader nested(const ProtobufField& field) const {
    return ProtobufReader(field.bytes,
                          offset_ + static_cast<size_t>(field.bytes.data() - data_.data()));
  }
  /// Of the last field, in the file.
  size_t place() const noexcept { return offset_ + field_at_; }
  /// "`what` at byte N".
  [[noreturn]] void fail(std::string_view what) const;

  // What the last field holds: they throw Error(kCorruptFile) if it is of another wire type.
  bool boolean(const ProtobufField& field) const { return integer(field) != 0; }
  uint64_t integer(const ProtobufField& field) const;
  float real(const ProtobufField& field) const;
  std::string_view bytes(const ProtobufField& field) const;

 private:
  uint64_t varint();
  uint64_t fixed(size_t size);

  std::string_view data_;
  size_t offset_;
  size_t at_ = 0;
  size_t field_at_ = 0;
};

}  // namespace headrace::text
