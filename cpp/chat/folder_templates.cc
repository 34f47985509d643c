#include "chat/folder_templates.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/check.h"
#include "text/files/file.h"
#include "text/files/gguf/gguf_file.h"
#include "text/files/gguf/gguf_specials.h"
#include "text/files/gguf/gguf_templates.h"
#include "text/files/tokenizer_config.h"
#include "text/json/value.h"
#include "text/unicode/utf8.h"

namespace headrace::chat {
namespace {

using text::json::Value;

constexpr size_t kMostTemplates = 100;

class Reader {
 public:
  explicit Reader(const std::string& folder) : folder_(folder) {}

  FolderTemplates read() {
    if (!text::is_there(folder_)) {
      throw_error(ErrorCode::kNotFound, "there is no folder ", folder_);
    }
    if (text::is_gguf_path(folder_)) {
      const text::GgufFile file(folder_);
      return {text::gguf_chat_templates(file.header()),
              text::gguf_tokenizer_config(file.header()).special_tokens};
    }
    made_.special_tokens = text::read_tokenizer_config(folder_).special_tokens;
    read_member(folder_ + "/tokenizer_config.json");
    read_member(folder_ + "/chat_template.json");
    for (const std::string& name : additional()) {
      read_file(folder_ + "/additional_chat_templates/" + name + ".jinja", name);
    }
    read_file(folder_ + "/chat_template.jinja", "default");
    return std::move(made_);
  }

 private:
  /// "chat_template" of a JSON file: a template, or a list of them with their names.
  void read_member(const std::string& path) {
    const Value file = text::read_json_file(path);
    const Value* found = file.find("chat_template");
    if (found == nullptr) return;
    if (found->string() != nullptr) add("default", *found->string());
    if (found->list() == nullptr) return;
    for (const Value& item : *found->list()) {
      const Value* name = item.find("name");
      const Value* text = item.find("template");
      if (text == nullptr || text->string() == nullptr ||
          (name != nullptr && name->string() == nullptr)) {
        throw_error(ErrorCode::kCorruptFile, path,
                    ": an entry of chat_template needs a name and a template, both strings");
      }
      add(name == nullptr ? "default" : *name->string(), *text->string());
    }
  }

  std::vector<std::string> additional() const {
    const std::string path = folder_ + "/additional_chat_templates";
    std::vector<std::string> names;
    std::error_code error;
    std::filesystem::directory_iterator file(path, error);
    for (; !error && file != std::filesystem::directory_iterator(); file.increment(error)) {
      if (file->path().extension() != ".jinja") continue;
      names.push_back(file->path().stem().string());
      if (text::invalid_utf8_at(names.back()) != text::kValid) {
        throw_error(ErrorCode::kCorruptFile, path, ": a file's name is not UTF-8");
      }
      if (names.size() > kMostTemplates) fail_count();
    }
    if (error && error != std::errc::no_such_file_or_directory &&
        error != std::errc::not_a_directory) {
      throw_error(ErrorCode::kIo, path, " can't be read: ", error.message());
    }
    std::ranges::sort(names);
    return names;
  }

  void read_file(const std::string& path, const std::string& name) {
    const std::optional<text::FileBytes> file = text::read_file(path, text::kMaxSideFileBytes);
    if (!file) return;
    const size_t invalid = text::invalid_utf8_at(file->view());
    if (invalid != text::kValid) {
      throw_error(ErrorCode::kCorruptFile, path, " is not UTF-8 at byte ", invalid);
    }
    add(name, std::string(file->view()));
  }

  void add(const std::string& name, std::string text) {
    made_.by_name[name] = std::move(text);
    if (made_.by_name.size() > kMostTemplates) fail_count();
  }

  [[noreturn]] void fail_count() const {
    throw_error(ErrorCode::kLimitExceeded, folder_, " has more than the ", kMostTemplates,
                " chat templates allowed");
  }

  const std::string& folder_;
  FolderTemplates made_;
};

}  // namespace

FolderTemplates read_folder_templates(const std::string& folder) { return Reader(folder).read(); }

}  // namespace headrace::chat
