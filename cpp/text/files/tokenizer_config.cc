#include "text/files/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <unordered_map>

#include "base/check.h"
#include "text/files/file.h"
#include "text/files/gguf/gguf_file.h"
#include "text/files/gguf/gguf_specials.h"
#include "text/files/tokenizer_json.h"
#include "text/json/fields.h"
#include "text/json/write.h"
#include "text/unicode/utf8.h"

namespace headrace::text {
namespace {

/// Of a token that is its text, or an object with it; null: none.
const std::string* content_of(const json::Value* value) {
  if (value == nullptr) return nullptr;
  if (value->object() != nullptr) value = value->find("content");
  const std::string* text = value == nullptr ? nullptr : value->string();
  return text == nullptr || text->empty() ? nullptr : text;
}

bool is_truthy(const json::Value& value) {
  switch (value.kind()) {
    case json::Value::Kind::kNull:
      return false;
    case json::Value::Kind::kBool:
      return *value.boolean();
    case json::Value::Kind::kInt:
      return *value.integer() != 0;
    case json::Value::Kind::kFloat:
      return *value.real() != 0;
    case json::Value::Kind::kString:
      return !value.string()->empty();
    case json::Value::Kind::kList:
      return !value.list()->empty();
    case json::Value::Kind::kObject:
      return !value.object()->empty();
  }
  return false;
}

std::optional<bool> flag_of(const json::Value& config, std::string_view name) {
  const json::Value* value = config.find(name);
  if (value == nullptr || value->boolean() == nullptr) return std::nullopt;
  return *value->boolean();
}

/// REQUIRES: neither null nor a list nor an object.
std::string shown(const json::Value& value) {
  if (value.boolean() != nullptr) return *value.boolean() ? "true" : "false";
  if (value.integer() != nullptr) return std::to_string(*value.integer());
  if (value.real() != nullptr) return std::to_string(*value.real());
  return shortened(json::quoted(*value.string()));
}

[[noreturn]] void fail_id(const std::string& path, const std::string& content) {
  throw_error(ErrorCode::kCorruptFile, path, ": the id of the added token ",
              shortened(json::quoted(content)), " must be in 0..", Vocabulary::kMaxId);
}

class ConfigReader {
 public:
  explicit ConfigReader(const std::string& folder)
      : folder_(folder),
        path_(folder + "/tokenizer_config.json"),
        config_(read_json_file(path_)),
        map_(read_json_file(folder + "/special_tokens_map.json")) {}

  TokenizerConfig read() {
    for (const char* name : kSpecialTokenNames) {
      if (const std::string* token = content_of(member(name))) {
        made_.special_tokens.emplace_back(name, *token);
      }
    }
    read_extra_tokens();
    read_added_tokens();
    read_decoder();
    if (added_.size() > AddedTokens::kMaxTokens) {
      throw_error(ErrorCode::kLimitExceeded, folder_, " has ", added_.size(),
                  " added tokens, more than the ", AddedTokens::kMaxTokens, " allowed");
    }
    for (auto& [id, token] : added_) made_.added_tokens.push_back(std::move(token));
    made_.add_bos = flag_of(config_, "add_bos_token");
    made_.add_eos = flag_of(config_, "add_eos_token");
    made_.legacy = flag_of(config_, "legacy");
    const json::Value* name = config_.find("tokenizer_class");
    if (name != nullptr && name->string() != nullptr) made_.tokenizer_class = *name->string();
    return std::move(made_);
  }

 private:
  /// Of tokenizer_config.json or, if it hasn't it, of special_tokens_map.json.
  const json::Value* member(std::string_view name) const {
    const json::Value* found = config_.find(name);
    return found != nullptr ? found : map_.find(name);
  }

  void read_extra_tokens() {
    for (const char* name : {"additional_special_tokens", "extra_special_tokens"}) {
      const json::Value* value = member(name);
      if (value == nullptr || !is_truthy(*value)) continue;
      if (value->list() == nullptr && value->object() == nullptr) {
        throw_error(ErrorCode::kCorruptFile, path_, ": ", name, " must be a list, got ",
                    shown(*value));
      }
      if (value->list() != nullptr) {
        for (const json::Value& item : *value->list()) add_extra(item);
      } else {
        for (const auto& [key, item] : *value->object()) add_extra(item);
      }
      return;
    }
  }

  void add_extra(const json::Value& item) {
    if (const std::string* text = content_of(&item)) {
      made_.additional_special_tokens.push_back(*text);
    }
  }

  void read_added_tokens() {
    const std::string path = folder_ + "/added_tokens.json";
    const json::Value tokens = read_json_file(path);
    for (const auto& [content, id] : *tokens.object()) {
      if (id.integer() == nullptr || *id.integer() < 0 || *id.integer() > Vocabulary::kMaxId) {
        fail_id(path, content);
      }
      AddedToken token;
      token.content = content;
      token.id = static_cast<int32_t>(*id.integer());
      added_[token.id] = std::move(token);
    }
  }

  void read_decoder() {
    const json::Value* decoder = config_.find("added_tokens_decoder");
    if (decoder == nullptr || !is_truthy(*decoder)) return;
    if (decoder->object() == nullptr) {
      throw_error(ErrorCode::kCorruptFile, path_, ": added_tokens_decoder must be an object");
    }
    for (const auto& [key, value] : *decoder->object()) {
      const std::string* content = content_of(&value);
      if (content == nullptr) {
        throw_error(ErrorCode::kCorruptFile, path_, ": bad added token ",
                    shortened(json::quoted(key)));
      }
      AddedToken token;
      token.content = *content;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
      if (error != std::errc() || end != key.data() + key.size() || token.id < 0 ||
          token.id > Vocabulary::kMaxId) {
        fail_id(path_, *content);
      }
      const auto flag = [&object = value](const char* name) {
        const json::Value* found = object.find(name);
        return found != nullptr && is_truthy(*found);
      };
      token.special = flag("special");
      token.lstrip = flag("lstrip");
      token.rstrip = flag("rstrip");
      token.single_word = flag("single_word");
      token.normalized = flag("normalized");
      added_[token.id] = std::move(token);
    }
  }

  const std::string& folder_;
  const std::string path_;
  const json::Value config_;
  const json::Value map_;
  TokenizerConfig made_;
  std::map<int32_t, AddedToken> added_;
};

}  // namespace

const std::string* TokenizerConfig::special_token(std::string_view name) const noexcept {
  for (const auto& [key, token] : special_tokens) {
    if (key == name) return &token;
  }
  return nullptr;
}

TokenizerConfig read_tokenizer_config(const std::string& folder) {
  if (is_gguf_path(folder)) return gguf_tokenizer_config(GgufFile(folder).header());
  return ConfigReader(folder).read();
}

void add_missing_tokens(const TokenizerConfig& config, TokenizerParts* parts) {
  std::unordered_map<std::string, AddedToken> known;
  for (const AddedToken& token : parts->added.all()) known.emplace(token.content, token);
  std::vector<AddedToken> wanted = config.added_tokens;
  const auto name = [&](const std::string& content) {
    if (!known.contains(content) && parts->vocabulary->find_spelling(content) < 0) return;
    AddedToken token;
    token.content = content;
    token.special = true;
    wanted.push_back(std::move(token));
  };
  for (const auto& [key, content] : config.special_tokens) name(content);
  for (const std::string& content : config.additional_special_tokens) name(content);

  // Of several of one content the first one's flags count, and the last one's place.
  std::unordered_map<std::string, AddedToken> first;
  for (const AddedToken& token : wanted) first.emplace(token.content, token);
  std::vector<AddedToken> missing;
  for (auto token = wanted.rbegin(); token != wanted.rend(); ++token) {
    const auto found = first.find(token->content);
    if (known.contains(token->content) || found == first.end()) continue;
    missing.push_back(std::move(found->second));
    first.erase(found);
  }
  std::reverse(missing.begin(), missing.end());
  normalize_patterns(parts->normalizer.get(), &missing);
  parts->added.add(missing, *parts->vocabulary);
  parts->added.build();
}

}  // namespace headrace::text
