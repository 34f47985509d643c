#include "text/files/gguf/gguf_templates.h"

#include <optional>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/unicode/utf8.h"

namespace headrace::text {

namespace {

constexpr std::string_view kTemplate = "tokenizer.chat_template";
constexpr std::string_view kNames = "tokenizer.chat_templates";
constexpr uint64_t kMostTemplates = 100;

std::string text_of(const GgufHeader& header, const std::string& key) {
  std::string text = header.text(key, "");
  if (invalid_utf8_at(text) != kValid) header.fail(key, "is not UTF-8");
  return text;
}

}  // namespace

std::map<std::string, std::string, std::less<>> gguf_chat_templates(const GgufHeader& header) {
  std::map<std::string, std::string, std::less<>> made;
  const std::string plain(kTemplate);
  if (header.find(plain) != nullptr) made["default"] = text_of(header, plain);
  const GgufValue* names = header.find(kNames);
  if (names == nullptr) return made;
  if (names->count() > kMostTemplates) {
    header.fail(kNames, str_cat("names ", names->count(), " templates; at most ", kMostTemplates,
                                " are read"));
  }
  const std::optional<std::vector<std::string_view>> listed = names->texts();
  if (!listed) header.fail(kNames, "is not a list of texts");
  for (const std::string_view name : *listed) {
    if (invalid_utf8_at(name) != kValid) header.fail(kNames, "holds a name that is not UTF-8");
    const std::string key = str_cat(kTemplate, ".", name);
    if (header.find(key) == nullptr) header.fail(key, "is missing, though it is listed");
    made[std::string(name)] = text_of(header, key);
  }
  return made;
}

}  // namespace headrace::text
