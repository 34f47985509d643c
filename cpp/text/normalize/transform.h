#pragma once

// Rewriting a text character by character, with origins as the `tokenizers` package counts them.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/normalize/normal_text.h"

namespace headrace::text {

/// Writes a new text beside the old one, whose characters are used up from front to back. Which of
/// them a new one comes from is a matter of counting alone.
class Transform {
 public:
  explicit Transform(NormalText* text) : text_(text), writer_(*text), old_(text->view()) {}

  /// The characters of the old text's [begin, end), each in place of an old one.
  void keep(size_t begin, size_t end);
  /// A new character that uses up 1 - change old ones and comes from the first of those. If change
  /// is 1 it comes from the last one that was used up, or from the start of the stretch.
  void push(char32_t value, int32_t change);
  /// The character that was pushed last uses up so many more. None was pushed: nothing happens
  /// (here as in the package, so that the rest comes from characters in front of their own).
  void shrink(int32_t count);
  /// The text becomes what was written.
  void finish();

 private:
  void flush();

  NormalText* text_;
  NormalText::Writer writer_;
  std::string_view old_;
  size_t used_ = 0;
  /// The last character waits for `shrink`.
  bool waiting_ = false;
  char32_t last_ = 0;
  int32_t change_ = 0;
};

}  // namespace headrace::text
