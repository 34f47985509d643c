#include "text/decode/piece_run.h"

#include "text/unicode/utf8.h"

namespace headrace::text {

void PieceRun::push(const TokenDecoder::Token& token, bool hidden, std::string* text) {
  if (token.is_byte) {
    bytes_ += token.bytes;
    at_start_ = false;
    settle_bytes(text);
    return;
  }
  finish(text);
  if (token.cuts) {
    at_start_ = true;
    if (!hidden) text->append(token.bytes);
    return;
  }
  text->append(token.bytes.substr(at_start_ && token.leading_space ? 1 : 0));
  at_start_ = at_start_ && !token.ends_start;
}

void PieceRun::finish(std::string* text) {
  for (size_t i = 0; i < bytes_.size(); ++i) text->append(kReplacementText);
  bytes_.clear();
}

void PieceRun::settle_bytes(std::string* text) {
  while (!bytes_.empty()) {
    if (invalid_utf8_at(bytes_) == kValid) {
      text->append(bytes_);
      bytes_.clear();
      return;
    }
    std::string parts;
    if (append_lossy(bytes_, &parts) == 0) return;  // it may become a character
    text->append(kReplacementText);
    bytes_.erase(0, 1);
  }
}

}  // namespace headrace::text
