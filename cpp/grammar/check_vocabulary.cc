#include "grammar/check_vocabulary.h"

#include "base/check.h"

namespace headrace::internal {

namespace {

constexpr size_t kMostIds = size_t{1} << 24;

void check_id(int32_t token, size_t size, const char* field) {
  if (token < 0 || static_cast<size_t>(token) >= size) {
    throw_error(ErrorCode::kInvalidArgument, field, " names id ", token,
                ", which is outside the vocabulary of ", size, " ids.");
  }
}

}  // namespace

bool is_text(const std::string& bytes) { return bytes.find('\xff') == std::string::npos; }

int32_t check_vocabulary(const VocabularyBytes& vocabulary) {
  const size_t size = vocabulary.tokens.size();
  if (size == 0 || size > kMostIds) {
    throw_error(ErrorCode::kInvalidArgument, "a vocabulary has 1 to ", kMostIds, " ids, got ", size,
                ".");
  }
  size_t bytes = 0;
  for (const std::string& token : vocabulary.tokens) bytes += token.size();
  for (const auto& [token, name] : vocabulary.special_tokens) {
    check_id(token, size, "special_tokens");
    if (!is_text(name)) {
      throw_error(ErrorCode::kInvalidArgument, "the name of special token ", token,
                  " is not in UTF-8.");
    }
  }
  for (const auto& [token, form] : vocabulary.first_tokens) {
    check_id(token, size, "first_tokens");
    bytes += form.size();
  }
  if (bytes > kMostVocabularyBytes) {
    throw_error(ErrorCode::kInvalidArgument, "the tokens of a vocabulary have at most ",
                kMostVocabularyBytes, " bytes in all.");
  }
  return static_cast<int32_t>(size);
}

}  // namespace headrace::internal
