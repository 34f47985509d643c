#include "text/files/sentencepiece/protobuf.h"

#include <bit>

#include "base/check.h"
#include "headrace/status.h"

namespace headrace::text {

namespace {

constexpr uint32_t kMaxFieldNumber = (1u << 29) - 1;

}  // namespace

void ProtobufReader::fail(std::string_view what) const {
  throw_error(ErrorCode::kCorruptFile, what, " at byte ", place());
}

bool ProtobufReader::next(ProtobufField* field) {
  field_at_ = at_;
  if (at_ == data_.size()) {
    return false;
  }
  const uint64_t key = varint();
  if (key >> 3 == 0 || key >> 3 > kMaxFieldNumber) {
    fail("a field of no valid number");
  }
  *field = ProtobufField();
  field->number = static_cast<uint32_t>(key >> 3);
  field->wire = static_cast<ProtobufField::Wire>(key & 7);
  switch (field->wire) {
    case ProtobufField::Wire::kVarint:
      field->value = varint();
      return true;
    case ProtobufField::Wire::kFixed64:
      field->value = fixed(8);
      return true;
    case ProtobufField::Wire::kFixed32:
      field->value = fixed(4);
      return true;
    case ProtobufField::Wire::kBytes: {
      const uint64_t size = varint();
      if (size > data_.size() - at_) {
        fail("a field that is longer than its message");
      }
      field->bytes = data_.substr(at_, size);
      at_ += size;
      return true;
    }
  }
  fail("a field of an unknown kind");
}

uint64_t ProtobufReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 70 && at_ < data_.size(); shift += 7) {
    const auto byte = static_cast<uint8_t>(data_[at_++]);
    if (shift == 63 && byte > 1) {
      break;
    }
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) {
      return value;
    }
  }
  fail("a number that has no end");
}

uint64_t ProtobufReader::fixed(size_t size) {
  if (size > data_.size() - at_) {
    fail("a field that is longer than its message");
  }
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(data_[at_ + i])) << 8 * i;
  }
  at_ += size;
  return value;
}

uint64_t ProtobufReader::integer(const ProtobufField& field) const {
  if (field.wire != ProtobufField::Wire::kVarint) {
    fail("a field that must be an integer");
  }
  return field.value;
}

float ProtobufReader::real(const ProtobufField& field) const {
  if (field.wire != ProtobufField::Wire::kFixed32) {
    fail("a field that must be a float");
  }
  return std::bit_cast<float>(static_cast<uint32_t>(field.value));
}

std::string_view ProtobufReader::bytes(const ProtobufField& field) const {
  if (field.wire != ProtobufField::Wire::kBytes) {
    fail("a field that must be bytes");
  }
  return field.bytes;
}

}  // namespace headrace::text
