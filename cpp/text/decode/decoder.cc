#include "text/decode/decoder.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "text/normalize/normalizers.h"
#include "text/regex/regex.h"
#include "text/unicode/utf8.h"

namespace headrace::text {

namespace {

constexpr size_t kMaxStages = 64;
constexpr double kMaxGrowth = 64;  // of a token

bool is_alone(StageKind kind) {
  return kind == StageKind::kReplace || kind == StageKind::kNormalize ||
         kind == StageKind::kStrip || kind == StageKind::kByteLevel;
}

bool is_one_char(std::string_view text) {
  return !text.empty() && utf8_size(text[0]) == text.size();
}

/// Of a stage behind the place where all tokens become one.
bool streams_whole(const Stage& stage) {
  return stage.kind == StageKind::kUtf8 || stage.kind == StageKind::kStripStart ||
         (stage.kind == StageKind::kReplace && is_one_char(stage.pattern));
}

size_t count_chars(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += utf8_size(text[at])) ++count;
  return count;
}

[[noreturn]] void refuse(const std::string& type, const char* what) {
  throw_error(ErrorCode::kCorruptFile, "the decoder ", type, " has no valid \"", what, "\"");
}

const std::string& text_of(const json::Value& spec, const std::string& type, const char* name) {
  const json::Value* value = spec.find(name);
  if (value == nullptr || value->string() == nullptr) refuse(type, name);
  return *value->string();
}

std::string char_of(const json::Value& spec, const std::string& type, const char* name) {
  const std::string& text = text_of(spec, type, name);
  if (!is_one_char(text)) refuse(type, name);
  return text;
}

size_t count_of(const json::Value& spec, const std::string& type, const char* name) {
  const json::Value* value = spec.find(name);
  if (value == nullptr || value->integer() == nullptr || *value->integer() < 0) {
    refuse(type, name);
  }
  return static_cast<size_t>(*value->integer());
}

Stage metaspace(const json::Value& spec) {
  Stage stage{.kind = StageKind::kMetaspace, .pattern = char_of(spec, "Metaspace", "replacement")};
  std::string scheme = "always";
  if (const json::Value* value = spec.find("prepend_scheme"); value != nullptr) {
    scheme = text_of(spec, "Metaspace", "prepend_scheme");
  }
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    refuse("Metaspace", "prepend_scheme");
  }
  stage.start_rule = scheme != "never";
  const json::Value* old_name = spec.find("add_prefix_space");
  const bool* prefixed = old_name == nullptr ? nullptr : old_name->boolean();
  if (prefixed != nullptr && !*prefixed && stage.start_rule) {
    throw_error(ErrorCode::kCorruptFile, "the decoder Metaspace has add_prefix_space false and ",
                "prepend_scheme \"", scheme, "\"");
  }
  return stage;
}

class Builder {
 public:
  void add(const json::Value& spec) {
    const json::Value* type = spec.find("type");
    if (type == nullptr || type->string() == nullptr) {
      throw_error(ErrorCode::kCorruptFile, "the decoder has no \"type\"");
    }
    if (*type->string() == "Sequence") {
      add_sequence(spec);
    } else {
      add_one(spec, *type->string());
    }
    if (stages_.size() > kMaxStages) {
      throw_error(ErrorCode::kLimitExceeded, "the decoder has more than ", kMaxStages, " steps");
    }
    if (growth_ > kMaxGrowth) {
      throw_error(ErrorCode::kLimitExceeded, "the decoder makes a text more than ", kMaxGrowth,
                  " times longer");
    }
  }

  void join_by_spaces() { stages_.push_back({.kind = StageKind::kSpaces}); }
  Decoder made() && {
    const size_t fused = is_fused_ ? fused_ : stages_.size();
    return {std::move(stages_), fused};
  }

 private:
  void add_sequence(const json::Value& spec) {
    const json::Value* decoders = spec.find("decoders");
    if (decoders == nullptr || decoders->list() == nullptr) refuse("Sequence", "decoders");
    for (const json::Value& decoder : *decoders->list()) add(decoder);
  }

  void add_one(const json::Value& spec, const std::string& type) {
    if (type == "Fuse") {
      fuse();
    } else if (type == "ByteLevel") {
      stages_.push_back({.kind = StageKind::kByteLevel});
      fuse();  // bytes are joined before they are text again
      stages_.push_back({.kind = StageKind::kUtf8});
    } else if (type == "ByteFallback") {
      stages_.push_back({.kind = StageKind::kByteFallback});
    } else if (type == "Replace") {
      add_replace(spec);
    } else if (type == "Strip") {
      add_strip(spec);
    } else if (type == "Metaspace") {
      stages_.push_back(metaspace(spec));
    } else if (type == "WordPiece") {
      const json::Value* cleanup = spec.find("cleanup");
      if (cleanup == nullptr || cleanup->boolean() == nullptr) refuse(type, "cleanup");
      stages_.push_back({.kind = StageKind::kWordPiece,
                         .pattern = text_of(spec, type, "prefix"),
                         .cleanup = *cleanup->boolean()});
    } else if (type == "BPEDecoder") {
      stages_.push_back({.kind = StageKind::kSuffix, .pattern = text_of(spec, type, "suffix")});
      if (stages_.back().pattern.empty()) growth_ *= 3;  // a space on each side of a character
    } else {
      throw_error(ErrorCode::kUnsupported, "the decoder ", type, " isn't supported");
    }
  }

  void fuse() {
    if (!is_fused_) fused_ = stages_.size();
    is_fused_ = true;
  }

  void add_replace(const json::Value& spec) {
    const json::Value* pattern = spec.find("pattern");
    const json::Value* plain = pattern == nullptr ? nullptr : pattern->find("String");
    const json::Value* regex = pattern == nullptr ? nullptr : pattern->find("Regex");
    const json::Value* given = plain != nullptr ? plain : regex;
    if (given == nullptr || given->string() == nullptr) refuse("Replace", "pattern");
    Stage stage{.kind = StageKind::kReplace, .content = text_of(spec, "Replace", "content")};
    if (plain != nullptr) {
      stage.pattern = *plain->string();
    } else {
      stage.kind = StageKind::kNormalize;
      stage.normalizer = make_replace(compile_regex(*regex->string()), stage.content);
    }
    const auto grown = static_cast<double>(count_chars(stage.content));
    // An expression may match nothing, between any two characters.
    growth_ *= stage.pattern.empty()
                   ? 1 + grown
                   : std::max(1.0, grown / static_cast<double>(count_chars(stage.pattern)));
    stages_.push_back(std::move(stage));
  }

  void add_strip(const json::Value& spec) {
    Stage stage{.kind = StageKind::kStrip,
                .pattern = char_of(spec, "Strip", "content"),
                .start = count_of(spec, "Strip", "start"),
                .stop = count_of(spec, "Strip", "stop")};
    if (is_fused_ && stage.stop == 0) stage.kind = StageKind::kStripStart;
    stages_.push_back(std::move(stage));
  }

  std::vector<Stage> stages_;
  bool is_fused_ = false;
  size_t fused_ = 0;
  double growth_ = 1;
};

}  // namespace

Decoder::Decoder(std::vector<Stage> stages, size_t fused)
    : stages_(std::move(stages)), fused_(fused), streamed_(fused) {
  while (alone_ < fused_ && is_alone(stages_[alone_].kind)) ++alone_;
  while (streamed_ < stages_.size() && streams_whole(stages_[streamed_])) ++streamed_;
}

bool Decoder::has(StageKind kind) const noexcept {
  return std::ranges::any_of(stages_, [&](const Stage& stage) { return stage.kind == kind; });
}

bool Decoder::is_byte_level() const noexcept {
  return stages_.size() == 2 && stages_[0].kind == StageKind::kByteLevel &&
         stages_[1].kind == StageKind::kUtf8;
}

void Decoder::prepare(std::string* token) const {
  for (size_t i = 0; i < alone_; ++i) apply_stage(stages_[i], false, false, token);
}

Decoder make_decoder(const json::Value& spec) {
  Builder builder;
  if (spec.is_null()) {
    builder.join_by_spaces();
  } else {
    builder.add(spec);
  }
  return std::move(builder).made();
}

}  // namespace headrace::text
