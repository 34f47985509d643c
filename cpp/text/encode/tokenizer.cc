#include <algorithm>
#include <cstdint>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "headrace/text.h"
#include "text/decode/token_decoder.h"
#include "text/encode/pipeline.h"
#include "text/files/file.h"
#include "text/files/folder.h"

namespace headrace::inline v0 {
namespace {

using text::AddedToken;
using text::TokenizerConfig;
using text::TokenizerParts;
using text::Vocabulary;

constexpr size_t kShortText = size_t{1} << 16;
constexpr size_t kKeptScratches = 16;
constexpr size_t kKeptText = size_t{1} << 20;  // what a longer text took is given back

int32_t id_in(const TokenizerParts& parts, std::string_view spelling) {
  const AddedToken* added = parts.added.find(spelling);
  return added != nullptr ? added->id : parts.vocabulary->find_spelling(spelling);
}

text::SequenceEnds ends_of(const TokenizerConfig& config, const TokenizerParts& parts) {
  const auto id = [&](const char* name) {
    const std::string* token = config.special_token(name);
    return token == nullptr ? Vocabulary::kNoId : id_in(parts, *token);
  };
  return {id("bos_token"), id("eos_token"), config.add_bos, config.add_eos};
}

std::shared_ptr<const text::TokenDecoder> decoder_of(const TokenizerParts& parts) {
  std::vector<text::AddedText> added;
  for (const AddedToken& token : parts.added.all()) {
    added.push_back(
        {token.id, token.content, token.pattern, parts.added.is_special(token.content)});
  }
  if (parts.piece_rules) {
    return std::make_shared<text::TokenDecoder>(*parts.vocabulary, added, *parts.piece_rules);
  }
  return std::make_shared<text::TokenDecoder>(*parts.vocabulary, added,
                                              text::make_decoder(parts.decoder));
}

}  // namespace

class Tokenizer::Impl {
 public:
  Impl(TokenizerConfig config, TokenizerParts parts, const text::SequenceEnds& ends)
      : config_(std::move(config)), decoder_(decoder_of(parts)), pipeline_(std::move(parts), ends) {
    count_tokens();
  }

  const TokenizerConfig& config() const { return config_; }
  const TokenizerParts& parts() const { return pipeline_.parts(); }
  const text::Pipeline& pipeline() const { return pipeline_; }
  const std::shared_ptr<const text::TokenDecoder>& decoder() const { return decoder_; }
  int32_t size() const { return size_; }
  size_t longest() const { return longest_; }

  std::unique_ptr<text::EncodeScratch> take_scratch() const {
    {
      const std::lock_guard lock(mutex_);
      if (!scratches_.empty()) {
        std::unique_ptr<text::EncodeScratch> scratch = std::move(scratches_.back());
        scratches_.pop_back();
        return scratch;
      }
    }
    return pipeline_.make_scratch();
  }

  void keep_scratch(std::unique_ptr<text::EncodeScratch> scratch) const {
    const std::lock_guard lock(mutex_);
    if (scratches_.size() < kKeptScratches) scratches_.push_back(std::move(scratch));
  }

 private:
  void count_tokens() {
    const Vocabulary& vocabulary = *parts().vocabulary;
    size_ = vocabulary.count();
    // Spellings in the byte-level alphabet are up to twice as long as the bytes that they stand
    // for.
    for (int32_t id = 0; id < vocabulary.end(); ++id) {
      if (vocabulary.bytes(id).size() * 2 > longest_) {
        longest_ = std::max(longest_, vocabulary.spelling(id).size());
      }
    }
    for (const AddedToken& token : parts().added.all()) {
      longest_ = std::max(longest_, token.content.size());
      if (vocabulary.find_spelling(token.content) == Vocabulary::kNoId) ++size_;
    }
  }

  const TokenizerConfig config_;
  const std::shared_ptr<const text::TokenDecoder> decoder_;
  const text::Pipeline pipeline_;
  int32_t size_ = 0;
  size_t longest_ = 1;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<text::EncodeScratch>> scratches_;
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::string& folder) {
  text::FolderTokenizer read = text::read_tokenizer_folder(folder);
  const text::SequenceEnds ends =
      read.has_ends ? text::SequenceEnds() : ends_of(read.config, read.parts);
  std::unique_ptr<Impl> impl;
  text::naming_file(read.path, [&] {
    impl = std::make_unique<Impl>(std::move(read.config), std::move(read.parts), ends);
  });
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

void Tokenizer::encode(std::string_view text, const EncodeOptions& options,
                       std::vector<int32_t>* ids, std::vector<TextSpan>* spans) const {
  if (options.max_tokens > 0 && text.size() > kShortText) {
    const bool any = options.max_tokens > SIZE_MAX / impl_->longest();
    const size_t most =
        any ? SIZE_MAX : std::max(options.max_tokens * impl_->longest(), kShortText);
    if (text.size() > most) {
      throw_error(ErrorCode::kLimitExceeded, "the text is too long: it has ", text.size(),
                  " bytes, and ", options.max_tokens, " tokens, the most that fit, hold at most ",
                  most);
    }
  }
  std::unique_ptr<text::EncodeScratch> scratch = impl_->take_scratch();
  std::vector<text::Range> ranges;
  impl_->pipeline().encode(text, options.add_special, options.special_as_text, scratch.get(), ids,
                           spans == nullptr ? nullptr : &ranges);
  if (text.size() <= kKeptText) impl_->keep_scratch(std::move(scratch));
  if (spans == nullptr) return;
  spans->clear();
  spans->reserve(ranges.size());
  for (const text::Range& range : ranges) spans->push_back({range.begin, range.end});
}

void Tokenizer::join_pair(std::span<const int32_t> first, std::span<const int32_t> second,
                          std::vector<int32_t>* ids, std::vector<int32_t>* types) const {
  const text::PostProcessor& post = impl_->pipeline().post_processor();
  if (!post.has_pair()) {
    throw_error(ErrorCode::kUnsupported,
                "the tokenizer has no template that says how two texts are joined");
  }
  post.join(first, second, ids, types);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  return impl_->decoder()->decode(ids, skip_special);
}

std::string Tokenizer::token_text(int32_t id) const { return impl_->decoder()->token_text(id); }

std::string Tokenizer::token_bytes(int32_t id) const {
  std::optional<std::string> part = impl_->decoder()->part_bytes(id);
  return part ? std::move(*part) : token_text(id);
}

std::optional<std::string> Tokenizer::spelling(int32_t id) const {
  if (const AddedToken* added = impl_->parts().added.find(id)) return added->pattern;
  const Vocabulary& vocabulary = *impl_->parts().vocabulary;
  if (vocabulary.kind(id) == text::TokenKind::kNone) return std::nullopt;
  return vocabulary.spelling(id);
}

std::optional<int32_t> Tokenizer::id(std::string_view spelling) const {
  const int32_t id = id_in(impl_->parts(), spelling);
  return id == Vocabulary::kNoId ? std::nullopt : std::optional(id);
}

int32_t Tokenizer::size() const noexcept { return impl_->size(); }

int32_t Tokenizer::end() const noexcept { return impl_->decoder()->size(); }

size_t Tokenizer::longest_token() const noexcept { return impl_->longest(); }

std::vector<SpecialToken> Tokenizer::special() const {
  std::vector<SpecialToken> tokens;
  std::unordered_set<std::string_view> known;  // the config's
  const auto add = [&](const std::string& role, const std::string& text) {
    const bool added = known.insert(text).second;
    if (added || !role.empty()) tokens.push_back({role, text, id(text).value_or(-1)});
  };
  for (const auto& [role, text] : impl_->config().special_tokens) add(role, text);
  for (const std::string& text : impl_->config().additional_special_tokens) add("", text);
  for (const AddedToken& token : impl_->config().added_tokens) {
    if (token.special) add("", token.content);
  }
  return tokens;
}

VocabularyBytes Tokenizer::token_bytes() const { return impl_->decoder()->token_bytes(); }

const std::shared_ptr<const text::TokenDecoder>& Tokenizer::decoder() const noexcept {
  return impl_->decoder();
}

}  // namespace headrace::inline v0
