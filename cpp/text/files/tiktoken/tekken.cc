#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "headrace/status.h"
#include "text/files/tiktoken/tiktoken.h"
#include "text/json/scanner.h"
#include "text/normalize/base64.h"

namespace headrace::text {

namespace {

constexpr int kTekkenDepth = 16;
constexpr size_t kTekkenValues = size_t{1} << 24;

/// Of files that don't list their special tokens.
constexpr std::array kFirstSpecials = {"<unk>",
                                       "<s>",
                                       "</s>",
                                       "[INST]",
                                       "[/INST]",
                                       "[AVAILABLE_TOOLS]",
                                       "[/AVAILABLE_TOOLS]",
                                       "[TOOL_RESULTS]",
                                       "[/TOOL_RESULTS]",
                                       "[TOOL_CALLS]",
                                       "[IMG]",
                                       "<pad>",
                                       "[IMG_BREAK]",
                                       "[IMG_END]",
                                       "[PREFIX]",
                                       "[MIDDLE]",
                                       "[SUFFIX]",
                                       "[SYSTEM_PROMPT]",
                                       "[/SYSTEM_PROMPT]",
                                       "[TOOL_CONTENT]"};

class TekkenReader {
 public:
  explicit TekkenReader(std::string_view file) : scanner_(file, kTekkenDepth, kTekkenValues) {}

  TokenizerTables read() {
    std::optional<size_t> vocab_at;
    scanner_.enter_object();
    std::string_view key;
    while (scanner_.next_key(&buffer_, &key)) {
      if (key == "config") {
        read_config();
      } else if (key == "special_tokens" && scanner_.peek() == json::Scanner::Next::kList) {
        read_specials();
      } else {
        if (key == "vocab") {
          vocab_at = scanner_.offset();
        }
        scanner_.skip_value();
      }
    }
    scanner_.finish();
    check_config(vocab_at.has_value());
    tables_.kind = TokenizerTables::Kind::kByteBpe;
    tables_.ignore_merges = true;
    tables_.vocabulary = std::make_shared<Vocabulary>(true);
    tables_.split.push_back(pattern_);
    add_specials();
    scanner_.go_to(*vocab_at);
    read_vocab();
    return std::move(tables_);
  }

 private:
  int64_t read_integer(int64_t most) {
    const auto number = scanner_.read_number();
    if (!number.integral || number.integer < 0 || number.integer > most) {
      scanner_.fail("a number that is out of range");
    }
    return number.integer;
  }

  void read_config() {
    scanner_.enter_object();
    std::string_view key;
    while (scanner_.next_key(&buffer_, &key)) {
      if (key == "pattern") {
        pattern_ = scanner_.read_string(&buffer_);
      } else if (key == "default_vocab_size") {
        size_ = read_integer(Vocabulary::kMaxId);
      } else if (key == "default_num_special_tokens") {
        specials_ = read_integer(static_cast<int64_t>(AddedTokens::kMaxTokens));
      } else {
        scanner_.skip_value();
      }
    }
  }

  void read_specials() {
    listed_ = true;
    scanner_.enter_list();
    while (scanner_.next_item()) {
      int64_t rank = -1;
      std::string name;
      scanner_.enter_object();
      std::string_view key;
      while (scanner_.next_key(&buffer_, &key)) {
        if (key == "rank") {
          rank = read_integer(Vocabulary::kMaxId);
        } else if (key == "token_str") {
          name = scanner_.read_string(&buffer_);
        } else {
          scanner_.skip_value();
        }
      }
      if (rank < 0 || name.empty()) {
        scanner_.fail("a special token without rank or token_str");
      }
      named_.emplace_back(static_cast<int32_t>(rank), std::move(name));
    }
  }

  void check_config(bool has_vocab) const {
    if (!has_vocab || pattern_.empty() || size_ < 0 || specials_ < 0) {
      throw Error(ErrorCode::kCorruptFile,
                  "it must have vocab, and in config pattern, default_vocab_size and "
                  "default_num_special_tokens");
    }
    if (specials_ > size_) {
      throw_error(ErrorCode::kCorruptFile, "default_num_special_tokens ", specials_,
                  " is more than default_vocab_size ", size_);
    }
  }

  void add_specials() {
    if (!listed_) {
      for (size_t id = 0; id < kFirstSpecials.size(); ++id) {
        named_.emplace_back(static_cast<int32_t>(id), kFirstSpecials[id]);
      }
    }
    std::set<int32_t> taken;
    for (const auto& [id, name] : named_) {
      if (id >= specials_) {
        throw_error(ErrorCode::kCorruptFile, "the special token \"", name, "\" has the rank ", id,
                    ", but there are only ", specials_, " special tokens");
      }
      taken.insert(id);
      add_special(id, name, &tables_);
    }
    for (int32_t id = 0; id < specials_; ++id) {
      if (!taken.contains(id)) {
        add_special(id, "<SPECIAL_" + std::to_string(id) + ">", &tables_);
      }
    }
  }

  /// Only so many tokens as config says: files have more.
  void read_vocab() {
    const int64_t count = size_ - specials_;
    int64_t read = 0;
    std::string bytes;
    scanner_.enter_list();
    while (scanner_.next_item()) {
      int64_t rank = -1;
      bytes.clear();
      scanner_.enter_object();
      std::string_view key;
      while (scanner_.next_key(&buffer_, &key)) {
        if (key == "rank") {
          rank = read_integer(Vocabulary::kMaxId);
        } else if (key == "token_bytes") {
          bytes = base64_bytes(scanner_.read_string(&buffer_));
        } else {
          scanner_.skip_value();
        }
      }
      if (rank < 0 || bytes.empty() || bytes.size() > kMaxByteTokenBytes) {
        scanner_.fail("a token without rank or token_bytes, or with too many");
      }
      if (rank < count) {
        tables_.vocabulary->append_bytes(static_cast<int32_t>(rank + specials_), bytes);
        ++read;
      }
    }
    tables_.vocabulary->index();
    if (read != count) {
      throw_error(ErrorCode::kCorruptFile, "vocab has ", read, " of the ", count,
                  " tokens that config wants");
    }
  }

  json::Scanner scanner_;
  std::string buffer_;
  TokenizerTables tables_;
  std::string pattern_;
  int64_t size_ = -1;
  int64_t specials_ = -1;
  bool listed_ = false;
  std::vector<std::pair<int32_t, std::string>> named_;
};

}  // namespace

TokenizerTables read_tekken(std::string_view file) { return TekkenReader(file).read(); }

}  // namespace headrace::text
