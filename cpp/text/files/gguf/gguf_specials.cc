#include "text/files/gguf/gguf_specials.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>

#include "base/check.h"
#include "text/files/sentencepiece/sentencepiece_model.h"
#include "text/unicode/utf8.h"

namespace headrace::text {

namespace {

constexpr std::string_view kTypes = "tokenizer.ggml.token_type";

/// Of the chat formats in use.
constexpr std::array<std::string_view, 16> kStopTexts = {"<|im_end|>",
                                                         "<|eot_id|>",
                                                         "<|eom_id|>",
                                                         "<|end|>",
                                                         "<|return|>",
                                                         "<|call|>",
                                                         "<|calls|>",
                                                         "<end_of_turn>",
                                                         "<|endoftext|>",
                                                         "<|end_of_text|>",
                                                         "<eos>",
                                                         "<turn|>",
                                                         "<end_of_utterance>",
                                                         "</s>",
                                                         "[EOS]",
                                                         "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"};

std::string key_of(std::string_view role) {
  // The format's own spelling.
  return str_cat("tokenizer.ggml.", role == "separator" ? "seperator" : role, "_token_id");
}

std::optional<bool> flag_of(const GgufHeader& header, const std::string& key) {
  if (header.find(key) == nullptr) return std::nullopt;
  return header.boolean(key, false);
}

}  // namespace

std::vector<std::string_view> gguf_tokens(const GgufHeader& header) {
  const GgufValue* value = header.find(kGgufTokens);
  if (value == nullptr) header.fail(kGgufTokens, "is missing: the file has no tokenizer");
  if (value->count() == 0 || value->count() > uint64_t{Vocabulary::kMaxId} + 1) {
    header.fail(kGgufTokens, str_cat("has ", value->count(), " tokens; 1 to ",
                                     Vocabulary::kMaxId + 1, " are read"));
  }
  std::optional<std::vector<std::string_view>> tokens = value->texts();
  if (!tokens) header.fail(kGgufTokens, "is not a list of texts");
  for (size_t id = 0; id < tokens->size(); ++id) {
    const std::string_view token = (*tokens)[id];
    if (token.size() > kMaxPieceBytes) {
      header.fail(kGgufTokens, str_cat("has token ", id, " of ", token.size(), " bytes; at most ",
                                       kMaxPieceBytes, " are read"));
    }
    if (invalid_utf8_at(token) != kValid) {
      header.fail(kGgufTokens, str_cat("has token ", id, ", which is not UTF-8"));
    }
  }
  return std::move(*tokens);
}

std::vector<GgufTokenType> gguf_token_types(const GgufHeader& header, size_t num_tokens) {
  const GgufValue* value = header.find(kTypes);
  if (value == nullptr) {
    header.fail(kTypes, "is missing: convert the model again with a current llama.cpp");
  }
  if (value->count() != num_tokens) {
    header.fail(kTypes, str_cat("has ", value->count(), " entries for ", num_tokens, " tokens"));
  }
  const std::optional<std::vector<int64_t>> types = value->integers();
  if (!types) header.fail(kTypes, "is not a list of whole numbers");
  std::vector<GgufTokenType> made;
  made.reserve(num_tokens);
  for (size_t id = 0; id < num_tokens; ++id) {
    const int64_t type = (*types)[id];
    if (type < int64_t{static_cast<uint8_t>(GgufTokenType::kNormal)} ||
        type > int64_t{static_cast<uint8_t>(GgufTokenType::kByte)}) {
      header.fail(kTypes, str_cat("gives token ", id, " the unknown type ", type));
    }
    made.push_back(static_cast<GgufTokenType>(type));
  }
  return made;
}

int32_t gguf_special_id(const GgufHeader& header, std::string_view role, size_t num_tokens) {
  const std::string key = key_of(role);
  if (header.find(key) == nullptr) return Vocabulary::kNoId;
  const int64_t id = header.integer(key, 0);
  if (id < 0 || id >= static_cast<int64_t>(num_tokens)) {
    header.fail(key, str_cat("is ", id, ", but there are ", num_tokens, " tokens"));
  }
  return static_cast<int32_t>(id);
}

std::vector<int32_t> gguf_stop_ids(const GgufHeader& header) {
  const std::vector<std::string_view> tokens = gguf_tokens(header);
  const std::vector<GgufTokenType> types = gguf_token_types(header, tokens.size());
  std::set<int32_t> ids;
  for (const char* role : {"eos", "eot", "eom"}) {
    const int32_t id = gguf_special_id(header, role, tokens.size());
    if (id != Vocabulary::kNoId) ids.insert(id);
  }
  std::array<int32_t, kStopTexts.size()> found;
  found.fill(Vocabulary::kNoId);
  for (size_t id = 0; id < tokens.size(); ++id) {
    // A model may have such a text as an ordinary token.
    if (types[id] != GgufTokenType::kControl && types[id] != GgufTokenType::kUserDefined) continue;
    const auto* place = std::ranges::find(kStopTexts, tokens[id]);
    if (place == kStopTexts.end()) continue;
    found[static_cast<size_t>(place - kStopTexts.begin())] = static_cast<int32_t>(id);
    ids.insert(static_cast<int32_t>(id));
  }
  const auto id_of = [&](std::string_view text) {
    return found[static_cast<size_t>(std::ranges::find(kStopTexts, text) - kStopTexts.begin())];
  };
  // gpt-oss ends a message by <|end|>, and an answer has several.
  if (id_of("<|return|>") != Vocabulary::kNoId && id_of("<|call|>") != Vocabulary::kNoId) {
    ids.erase(id_of("<|end|>"));
  }
  return {ids.begin(), ids.end()};
}

TokenizerConfig gguf_tokenizer_config(const GgufHeader& header) {
  const std::vector<std::string_view> tokens = gguf_tokens(header);
  constexpr std::array<std::pair<const char*, const char*>, 7> kRoles = {
      {{"bos_token", "bos"},
       {"eos_token", "eos"},
       {"unk_token", "unknown"},
       {"sep_token", "separator"},
       {"pad_token", "padding"},
       {"cls_token", "cls"},
       {"mask_token", "mask"}}};
  TokenizerConfig made;
  for (const auto& [name, role] : kRoles) {
    const int32_t id = gguf_special_id(header, role, tokens.size());
    if (id == Vocabulary::kNoId || tokens[static_cast<size_t>(id)].empty()) continue;
    made.special_tokens.emplace_back(name, tokens[static_cast<size_t>(id)]);
  }
  made.add_bos = flag_of(header, "tokenizer.ggml.add_bos_token");
  made.add_eos = flag_of(header, "tokenizer.ggml.add_eos_token");
  return made;
}

}  // namespace headrace::text
