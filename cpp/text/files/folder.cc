#include "text/files/folder.h"

#include <optional>
#include <utility>

#include "base/check.h"
#include "text/files/file.h"
#include "text/files/tokenizer_json.h"
#include "text/files/vocabulary_folder.h"

namespace headrace::text {

FolderTokenizer read_tokenizer_folder(const std::string& folder) {
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
