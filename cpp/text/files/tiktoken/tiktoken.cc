#include "text/files/tiktoken/tiktoken.h"

#include <charconv>
#include <memory>
#include <utility>

#include "base/check.h"
#include "headrace/status.h"
#include "text/files/pre_names.h"
#include "text/normalize/base64.h"

namespace headrace::text {

namespace {

/// One line: base64, a space, and the rank.
void add_tiktoken_line(std::string_view line, size_t number, Vocabulary* vocabulary) {
  const size_t space = line.find(' ');
  int32_t rank = -1;
  const std::string_view digits = space == line.npos ? "" : line.substr(space + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (error != std::errc() || end != digits.data() + digits.size() || rank < 0) {
    throw_error(ErrorCode::kCorruptFile, "line ", number, " must be base64, a space and a rank");
  }
  const std::string bytes = base64_bytes(line.substr(0, space));
  if (bytes.empty()) {
    throw_error(ErrorCode::kCorruptFile, "the token of line ", number, " is empty");
  }
  if (bytes.size() > kMaxByteTokenBytes) {
    throw_error(ErrorCode::kLimitExceeded, "the token of line ", number, " has ", bytes.size(),
                " bytes, more than the ", kMaxByteTokenBytes, " allowed");
  }
  vocabulary->append_bytes(rank, bytes);
}

}  // namespace

bool is_tiktoken(std::string_view file) noexcept {
  // A protocol buffer of pieces begins with a newline.
  const std::string_view line = file.substr(0, file.find('\n'));
  const size_t space = line.find(' ');
  constexpr std::string_view kBase64 =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
  return space != line.npos && space > 0 &&
         line.substr(0, space).find_first_not_of(kBase64) == line.npos;
}

TokenizerTables read_tiktoken(std::string_view file, std::string_view pre) {
  TokenizerTables tables;
  set_pre(pre, &tables);
  tables.kind = TokenizerTables::Kind::kByteBpe;
  tables.ignore_merges = true;
  tables.vocabulary = std::make_shared<Vocabulary>(true);
  size_t number = 0;
  while (!file.empty()) {
    const size_t end = file.find('\n');
    std::string_view line = file.substr(0, end);
    file.remove_prefix(end == file.npos ? file.size() : end + 1);
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    ++number;
    if (!line.empty()) {
      add_tiktoken_line(line, number, tables.vocabulary.get());
    }
  }
  tables.vocabulary->index();
  if (tables.vocabulary->count() == 0) {
    throw Error(ErrorCode::kCorruptFile, "there are no tokens in it");
  }
  return tables;
}

void add_special(int32_t id, const std::string& content, TokenizerTables* tables) {
  tables->vocabulary->add(id, content, TokenKind::kControl);
  AddedToken token;
  token.content = content;
  token.id = id;
  token.special = true;
  tables->added.push_back(std::move(token));
}

std::vector<std::string> qwen_specials() {
  std::vector<std::string> names = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  for (int i = 0; i < 205; ++i) {
    names.push_back("<|extra_" + std::to_string(i) + "|>");
  }
  return names;
}

std::vector<std::string> llama3_specials() {
  std::vector<std::string> names = {"<|begin_of_text|>",
                                    "<|end_of_text|>",
                                    "<|reserved_special_token_0|>",
                                    "<|reserved_special_token_1|>",
                                    "<|finetune_right_pad_id|>",
                                    "<|step_id|>",
                                    "<|start_header_id|>",
                                    "<|end_header_id|>",
                                    "<|eom_id|>",
                                    "<|eot_id|>",
                                    "<|python_tag|>",
                                    "<|image|>"};
  for (int i = 2; names.size() < 256; ++i) {
    names.push_back("<|reserved_special_token_" + std::to_string(i) + "|>");
  }
  return names;
}

}  // namespace headrace::text
