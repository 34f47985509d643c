#include "text/unicode/properties.h"

#include <cstring>

#include "text/unicode/tables/tables.h"

namespace headrace::text {
namespace {

CharClass unpacked(uint64_t value) noexcept {
  return {static_cast<uint16_t>(value), static_cast<uint8_t>(value >> 16),
          static_cast<GraphemeKind>(value >> 24 & 0xFF), static_cast<uint8_t>(value >> 32)};
}

}  // namespace

const CharTable& CharTable::get() noexcept {
  static const CharTable table;
  return table;
}

CharTable::CharTable() noexcept {
  for (size_t i = 0; i < tables::kClassesSize; ++i) {
    classes_[i] = unpacked(tables::kClasses[i]);
  }
  size_t pages = 0;  // those that differ
  size_t range = 0;
  uint32_t left = tables::kClassRanges[0] >> 8;
  for (uint16_t& place : index_) {
    // The table's size is a property of the data that a test checks: there is always room.
    uint8_t* page = pages_[pages];
    for (size_t i = 0; i <= kPageMask; ++i, --left) {
      if (left == 0) {
        left = tables::kClassRanges[++range] >> 8;
      }
      page[i] = static_cast<uint8_t>(tables::kClassRanges[range]);
    }
    size_t same = 0;
    while (std::memcmp(pages_[same], page, kPageMask + 1) != 0) {
      ++same;
    }
    place = static_cast<uint16_t>(same);
    pages += same == pages;
  }
}

}  // namespace headrace::text
