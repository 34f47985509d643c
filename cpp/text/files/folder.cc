#include "text/files/folder.h"

#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "text/files/file.h"
#include "text/files/gguf/gguf_file.h"
#include "text/files/gguf/gguf_specials.h"
#include "text/files/gguf/gguf_tokenizer.h"
#include "text/files/tokenizer_json.h"
#include "text/files/tokenizer_tables.h"
#include "text/files/vocabulary_folder.h"

namespace headrace::text {

namespace {

FolderTokenizer read_gguf_file(const std::string& path) {
  constexpr std::string_view kWhole = "tokenizer.huggingface.json";
  const GgufFile file(path);
  FolderTokenizer made;
  made.path = path;
  made.config = gguf_tokenizer_config(file.header());
  if (file.header().find(kWhole) != nullptr) {
    const std::string text = file.header().text(kWhole, "");
    naming_file(path, [&] {
      made.parts = read_tokenizer_json(text);
      add_missing_tokens(made.config, &made.parts);
    });
    return made;
  }
  TokenizerTables tables = read_gguf_tokenizer(file.header());
  naming_file(path, [&] { made.parts = make_parts(std::move(tables)); });
  made.has_ends = true;
  return made;
}

}  // namespace

FolderTokenizer read_tokenizer_folder(const std::string& folder) {
  if (is_gguf_path(folder)) return read_gguf_file(folder);
  FolderTokenizer made;
  made.config = read_tokenizer_config(folder);
  const std::string path = folder + "/tokenizer.json";
  if (const std::optional<FileBytes> file = read_file(path, kMaxTokenizerBytes)) {
    made.path = path;
    naming_file(path, [&] {
      made.parts = read_tokenizer_json(file->view());
      add_missing_tokens(made.config, &made.parts);
    });
    return made;
  }
  if (std::optional<TokenizerParts> parts =
          read_vocabulary_folder(folder, made.config, &made.path)) {
    made.parts = std::move(*parts);
    made.has_ends = true;
    return made;
  }
  throw_error(ErrorCode::kNotFound, folder,
              " has no tokenizer: expected tokenizer.json, tokenizer.model, spm.model, "
              "ernie_token_100k.model, qwen.tiktoken, tiktoken.model or tekken.json");
}

}  // namespace headrace::text
