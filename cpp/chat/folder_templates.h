#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace headrace::chat {

struct FolderTemplates {
  std::map<std::string, std::string, std::less<>> by_name;  ///< "default" is the plain one
  /// "bos_token" and "<s>", ...
  std::vector<std::pair<std::string, std::string>> special_tokens;
};

/// Of a model folder. Later sources win: tokenizer_config.json, chat_template.json, the .jinja
/// files. Of a .gguf file, those in its metadata. Throws Error, which names the file.
FolderTemplates read_folder_templates(const std::string& folder);

}  // namespace headrace::chat
