#include "text/files/vocabulary_folder.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "headrace/status.h"
#include "text/files/file.h"
#include "text/files/sentencepiece/sentencepiece_model.h"
#include "text/files/tiktoken/tiktoken.h"
#include "text/files/tokenizer_tables.h"

namespace headrace::text {

namespace {

constexpr size_t kMaxVocabularyBytes = size_t{64} << 20;
constexpr std::array kVocabularyFiles = {"tokenizer.model",        "spm.model",
                                         "ernie_token_100k.model", "qwen.tiktoken",
                                         "tiktoken.model",         "tekken.json"};
constexpr int32_t kKimiReserved = 256;

/// The config's added tokens, and the special ones that it names, as far as there are such tokens.
class ConfigTokens {
 public:
  ConfigTokens(const TokenizerConfig& config, TokenizerTables* tables)
      : config_(config), tables_(*tables) {
    for (size_t i = 0; i < tables_.added.size(); ++i) {
      places_.emplace(tables_.added[i].content, i);
    }
  }

  void add() {
    for (const AddedToken& token : config_.added_tokens) {
      add_token(token);
    }
    for (const auto& [key, content] : config_.special_tokens) {
      name_special(content);
    }
    for (const std::string& content : config_.additional_special_tokens) {
      name_special(content);
    }
    if (tables_.kind == TokenizerTables::Kind::kPieceBpe ||
        tables_.kind == TokenizerTables::Kind::kUnigram) {
      tables_.scores.resize(static_cast<size_t>(tables_.vocabulary->end()));
    }
  }

 private:
  void add_token(const AddedToken& token) {
    Vocabulary& vocabulary = *tables_.vocabulary;
    const int32_t known = vocabulary.find_spelling(token.content);
    if (known != Vocabulary::kNoId ? known != token.id
                                   : vocabulary.kind(token.id) != TokenKind::kNone) {
      throw_error(ErrorCode::kUnsupported, "tokenizer_config.json gives the added token \"",
                  token.content, "\" the id ", token.id,
                  known != Vocabulary::kNoId ? ", but the vocabulary another one"
                                             : ", which another token has in the vocabulary");
    }
    if (known == Vocabulary::kNoId) {
      vocabulary.add(token.id, token.content, TokenKind::kControl);
    }
    set(token.content, token.id, token.special);
  }

  void name_special(const std::string& content) {
    const int32_t id = tables_.vocabulary->find_spelling(content);
    if (id != Vocabulary::kNoId) {
      set(content, id, true);
    }
  }

  /// Matched as it is written: flags about neighbours have never counted in these folders.
  void set(const std::string& content, int32_t id, bool special) {
    const auto [place, added] = places_.emplace(content, tables_.added.size());
    if (added) {
      AddedToken token;
      token.content = content;
      token.id = id;
      tables_.added.push_back(std::move(token));
    }
    tables_.added[place->second].special |= special;
  }

  const TokenizerConfig& config_;
  TokenizerTables& tables_;
  std::unordered_map<std::string, size_t> places_;
};

/// The special tokens are behind all others.
void add_specials_behind(const std::vector<std::string>& names, TokenizerTables* tables) {
  int32_t id = tables->vocabulary->end();
  for (const std::string& name : names) {
    add_special(id++, name, tables);
  }
}

TokenizerTables read_tiktoken_model(std::string_view file, const TokenizerConfig& config) {
  constexpr int32_t kLlama3Tokens = 128000, kLlama4Tokens = 200000;
  TokenizerTables tables = read_tiktoken(file, "llama3");
  const int32_t count = tables.vocabulary->count();
  if (count == kLlama3Tokens) {
    if (config.added_tokens.empty()) {
      add_specials_behind(llama3_specials(), &tables);
    }
    return tables;
  }
  if (count != kLlama4Tokens || config.added_tokens.empty()) {
    throw_error(ErrorCode::kUnsupported, "a tiktoken file of ", count,
                " tokens: how it cuts texts into words, and its special tokens, can't be told. "
                "Add a tokenizer.json");
  }
  return read_tiktoken(file, "llama4");
}

TokenizerTables read_kimi(std::string_view file, const TokenizerConfig& config) {
  TokenizerTables tables = read_tiktoken(file, "kimi-k2");
  if (config.added_tokens.empty()) {
    throw Error(ErrorCode::kUnsupported,
                "the special tokens of a tiktoken.model must be in tokenizer_config.json: it has "
                "no added_tokens_decoder");
  }
  const int32_t first = tables.vocabulary->end();
  for (int32_t id = first; id < first + kKimiReserved; ++id) {
    const auto named = [id](const AddedToken& token) { return token.id == id; };
    if (std::none_of(config.added_tokens.begin(), config.added_tokens.end(), named)) {
      add_special(id, "<|reserved_token_" + std::to_string(id) + "|>", &tables);
    }
  }
  return tables;
}

TokenizerTables read_tables(std::string_view name, std::string_view file,
                            const TokenizerConfig& config) {
  if (name == "tekken.json") {
    return read_tekken(file);
  }
  if (name == "tiktoken.model") {
    return read_kimi(file, config);
  }
  if (name == "qwen.tiktoken") {
    TokenizerTables tables = read_tiktoken(file, "qwen2");
    add_specials_behind(qwen_specials(), &tables);
    return tables;
  }
  if (name == "tokenizer.model" && is_tiktoken(file)) {
    return read_tiktoken_model(file, config);
  }
  TokenizerTables tables = read_sentencepiece_model(file);
  tables.spaces.first_stretch_only = config.legacy == false;
  return tables;
}

int32_t named_id(const TokenizerConfig& config, std::string_view name,
                 const TokenizerTables& tables) {
  const std::string* content = config.special_token(name);
  return content == nullptr ? Vocabulary::kNoId : tables.vocabulary->find_spelling(*content);
}

}  // namespace

std::optional<TokenizerParts> read_vocabulary_folder(const std::string& folder,
                                                     const TokenizerConfig& config,
                                                     std::string* path) {
  const auto name = std::find_if(kVocabularyFiles.begin(), kVocabularyFiles.end(),
                                 [&](const char* file) { return is_there(folder + "/" + file); });
  if (name == kVocabularyFiles.end()) {
    return std::nullopt;
  }
  *path = folder + "/" + *name;
  const std::optional<FileBytes> file = read_file(*path, kMaxVocabularyBytes);
  std::optional<TokenizerParts> parts;
  naming_file(*path, [&] {
    TokenizerTables tables = read_tables(*name, file ? file->view() : std::string_view(), config);
    const bool llama = config.tokenizer_class.starts_with("Llama") ||
                       config.tokenizer_class.starts_with("CodeLlama");
    ConfigTokens(config, &tables).add();
    if (config.add_bos.value_or(llama)) {
      tables.bos_id = named_id(config, "bos_token", tables);
    }
    if (config.add_eos.value_or(false)) {
      tables.eos_id = named_id(config, "eos_token", tables);
    }
    parts = make_parts(std::move(tables));
  });
  return parts;
}

}  // namespace headrace::text
