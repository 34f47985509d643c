#pragma once

// A text as normalizers and splitters change it, with where in the original each byte came from.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headrace::text {

/// A range of bytes.
struct Range {
  uint32_t begin = 0;
  uint32_t end = 0;

  friend bool operator==(const Range&, const Range&) = default;
};

class NormalText {
 public:
  /// What normalizers and splitters may make of a text. Writing more throws Error(kLimitExceeded).
  static constexpr size_t kMaxBytes = size_t{1} << 30;

  NormalText() = default;
  /// A stretch of the original that begins at its byte `offset`. tracked: origins are wanted.
  /// Without them only begins_text() is kept up.
  NormalText(std::string_view stretch, size_t offset, bool tracked);

  std::string_view view() const noexcept { return text_; }
  size_t size() const noexcept { return text_.size(); }
  bool tracked() const noexcept { return tracked_; }
  /// By byte: the range of the original that it came from. Empty if not tracked.
  std::span<const Range> origins() const noexcept { return origins_; }
  /// Does the first byte come from the first byte of the whole original? (Metaspace's `first`.)
  bool begins_text() const noexcept { return front_ > 0; }

  /// What takes the place of all text, written from front to back. Take one, write, then
  /// `replace_by` it.
  class Writer {
   public:
    explicit Writer(const NormalText& old);
    /// `bytes` [begin, end) of the old text, as they are.
    void keep(size_t begin, size_t end);
    /// New bytes in place of the old text's [begin, end), as the `tokenizers` package replaces a
    /// match: they come from what the byte in front of `end` came from. If there is none they come
    /// from the start of the stretch, an empty range.
    void put(std::string_view bytes, size_t begin, size_t end);
    /// New bytes that come from what the old text's byte `at` came from.
    void put_as(std::string_view bytes, size_t at);

   private:
    friend class NormalText;
    const NormalText& old_;
    std::string text_;
    std::vector<Range> origins_;
    size_t front_ = 0;
  };
  void replace_by(Writer&& writer);

  /// What is put in front comes from what the first character came from (Prepend, Metaspace and
  /// ByteLevel's prefix space). An empty text stays empty.
  void prepend(std::string_view prefix);

  /// The part [begin, end), as a text of its own.
  NormalText part(size_t begin, size_t end) const;
  /// What [begin, end) came from, from the start of the first to the end of the last. REQUIRES:
  /// tracked.
  Range origin(size_t begin, size_t end) const;

 private:
  std::string text_;
  std::vector<Range> origins_;
  uint32_t start_ = 0;  ///< the stretch's place in the original
  bool tracked_ = false;
  /// How many bytes in front come from the first one of the original: origins never go backwards.
  size_t front_ = 0;
};

}  // namespace headrace::text
