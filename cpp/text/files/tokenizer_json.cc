#include "text/files/tokenizer_json.h"

#include <string>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "text/files/model_json.h"
#include "text/json/fields.h"
#include "text/json/scanner.h"

namespace headrace::text {
namespace {

constexpr int kMaxDepth = 100;
constexpr size_t kMaxValues = size_t{1} << 25;
constexpr size_t kMaxKeptValues = size_t{1} << 21;  // of a member beside the model

std::vector<AddedToken> added_tokens_of(const json::Value& spec) {
  std::vector<AddedToken> tokens;
  if (spec.is_null()) return tokens;
  if (spec.list() == nullptr) throw_error(ErrorCode::kCorruptFile, "added_tokens must be a list");
  if (spec.list()->size() > AddedTokens::kMaxTokens) {
    throw_error(ErrorCode::kLimitExceeded, "it has ", spec.list()->size(),
                " added tokens, more than the ", AddedTokens::kMaxTokens, " allowed");
  }
  for (const json::Value& item : *spec.list()) {
    AddedToken token;
    token.content = json::string_of(item, "content");
    const json::Value* id = json::given(item, "id");
    if (id == nullptr) {
      throw_error(ErrorCode::kCorruptFile, "the added token \"", token.content, "\" has no id");
    }
    token.id = json::id_of(*id, "id");
    token.special = json::bool_of(item, "special");
    token.single_word = json::bool_of(item, "single_word");
    token.lstrip = json::bool_of(item, "lstrip");
    token.rstrip = json::bool_of(item, "rstrip");
    token.normalized = json::bool_of(item, "normalized");
    tokens.push_back(std::move(token));
  }
  return tokens;
}

/// A token gets its id from where it stands, as in the `tokenizers` package. A file that says
/// something else is a broken one.
void check_ids(const std::vector<AddedToken>& tokens, const AddedTokens& added) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (const AddedToken& token : added.all()) ids.emplace(token.content, token.id);
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    const int32_t id = ids[token.content];
    if (id != token.id) {
      throw_error(ErrorCode::kCorruptFile, "the added token \"", token.content, "\" has the id ",
                  token.id, ", but from its place in the file it is ", id);
    }
  }
}

/// The members of a tokenizer.json.
struct Members {
  json::Value added_tokens;
  json::Value normalizer;
  json::Value pre_tokenizer;
  json::Value post_processor;
  json::Value decoder;

  json::Value* find(std::string_view key) {
    if (key == "added_tokens") return &added_tokens;
    if (key == "normalizer") return &normalizer;
    if (key == "pre_tokenizer") return &pre_tokenizer;
    if (key == "post_processor") return &post_processor;
    return key == "decoder" ? &decoder : nullptr;
  }
};

class Reader {
 public:
  explicit Reader(std::string_view text) : scanner_(text, kMaxDepth, kMaxValues) {}

  TokenizerParts read() {
    read_members();
    if (!split_) split();
    if (model_at_) {  // it came before the pre_tokenizer, which says how it spells
      scanner_.go_to(*model_at_);
      read_model();
    }
    if (parts_.model == nullptr) throw_error(ErrorCode::kCorruptFile, "it has no model");
    parts_.normalizer = make_normalizer(members_.normalizer);
    parts_.post_processor = std::move(members_.post_processor);
    parts_.decoder = std::move(members_.decoder);
    std::vector<AddedToken> tokens = added_tokens_of(members_.added_tokens);
    normalize_patterns(parts_.normalizer.get(), &tokens);
    parts_.added.add(tokens, *parts_.vocabulary);
    check_ids(tokens, parts_.added);
    return std::move(parts_);
  }

 private:
  void read_members() {
    std::string buffer;
    std::string_view key_view;
    std::vector<std::string> seen;
    scanner_.enter_object();
    while (scanner_.next_key(&buffer, &key_view)) {
      const std::string key(key_view);
      for (const std::string& other : seen) {
        if (other == key) scanner_.fail("a key that its object had before");
      }
      if (seen.size() < kMaxDepth) seen.push_back(key);
      if (json::Value* member = members_.find(key)) {
        const size_t rest = scanner_.allow_values(kMaxKeptValues);
        *member = read_value(&scanner_);
        scanner_.allow_values(rest);
        if (key == "pre_tokenizer") split();
      } else if (key == "model" && split_) {
        read_model();
      } else if (key == "model") {
        model_at_ = scanner_.offset();
        scanner_.skip_value();
      } else if (key == "version") {
        if (scanner_.read_string(&buffer) != "1.0") scanner_.fail("an unknown version");
      } else {
        scanner_.skip_value();
      }
    }
    scanner_.finish();
  }

  void split() {
    parts_.splitter = make_splitter(members_.pre_tokenizer);
    split_ = true;
  }

  void read_model() {
    ModelJsonReader reader(&scanner_, parts_.splitter.byte_level);
    reader.read();
    parts_.vocabulary = reader.vocabulary();
    parts_.model = reader.model();
  }

  json::Scanner scanner_;
  Members members_;
  TokenizerParts parts_;
  bool split_ = false;
  std::optional<size_t> model_at_;
};

}  // namespace

void normalize_patterns(const Normalizer* normalizer, std::vector<AddedToken>* tokens) {
  constexpr uint64_t kSteps = 1 << 20, kStepsOfByte = 64;
  uint64_t bytes = 0;
  for (const AddedToken& token : *tokens) bytes += token.content.size();
  Fuel fuel(kSteps + kStepsOfByte * bytes, "normalizing the added tokens");
  for (AddedToken& token : *tokens) {
    token.pattern = token.content;
    if (!token.normalized || normalizer == nullptr) continue;
    NormalText text(token.content, 0, false);
    normalizer->apply(&text, &fuel);
    token.pattern = text.view();
  }
}

TokenizerParts read_tokenizer_json(std::string_view text) { return Reader(text).read(); }

}  // namespace headrace::text
