#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "text/json/fields.h"
#include "text/normalize/base64.h"
#include "text/normalize/normalizers.h"
#include "text/unicode/utf8.h"

namespace headrace::text {
namespace {

// A text may not be blown up: 20 replacements that double it make a megabyte of each character.
constexpr double kMaxGrowth = 64;
constexpr int kMaxNesting = 16;
constexpr int kMaxNormalizers = 256;

double count_of(std::string_view text) noexcept {
  return static_cast<double>(
      std::count_if(text.begin(), text.end(), [](char byte) { return !utf8_continues(byte); }));
}

/// Makes normalizers, and adds up by how much they may make a text longer.
class Maker {
 public:
  NormalizerPtr make(const json::Value& spec, int depth) {
    if (++made_ > kMaxNormalizers) {
      throw_error(ErrorCode::kLimitExceeded, "more than ", kMaxNormalizers, " normalizers");
    }
    const std::string& type = json::string_of(spec, "type");
    if (type == "Sequence") {
      return sequence(spec, depth);
    }
    if (type == "Prepend") {
      const std::string& prefix = json::string_of(spec, "prepend");
      grow(1 + count_of(prefix));  // of a text; counted as if it were of each character
      return make_prepend(prefix);
    }
    if (type == "Replace") {
      return replace(spec);
    }
    if (type == "BertNormalizer") {
      return bert(spec);
    }
    if (type == "Strip") {
      const bool left = json::bool_of(spec, "strip_left");
      return make_strip(left, json::bool_of(spec, "strip_right"));
    }
    if (type == "Precompiled") {
      return make_precompiled(
          Charsmap(base64_bytes(json::string_of(spec, "precompiled_charsmap"))));
    }
    return simple(type);
  }

 private:
  /// Those without options.
  NormalizerPtr simple(const std::string& type) {
    if (type == "NFC") return make_form(NormalForm::kNfc);
    if (type == "NFD") return make_form(NormalForm::kNfd);
    if (type == "NFKC") return make_form(NormalForm::kNfkc);
    if (type == "NFKD") return make_form(NormalForm::kNfkd);
    if (type == "Lowercase") return make_lowercase();
    if (type == "StripAccents") return make_strip_accents();
    if (type == "Nmt") return make_nmt();
    if (type == "ByteLevel") {
      grow(2);
      return make_byte_level();
    }
    throw_error(ErrorCode::kUnsupported, "the normalizer \"", type, "\" is not supported");
  }

  NormalizerPtr sequence(const json::Value& spec, int depth) {
    if (depth == kMaxNesting) {
      throw_error(ErrorCode::kLimitExceeded, "normalizers within more than ", kMaxNesting,
                  " Sequences");
    }
    std::vector<NormalizerPtr> steps;
    for (const json::Value& step : json::list_of(spec, "normalizers")) {
      steps.push_back(make(step, depth + 1));
    }
    return make_sequence(std::move(steps));
  }

  NormalizerPtr replace(const json::Value& spec) {
    const std::string& content = json::string_of(spec, "content");
    const json::Value* pattern = json::given(spec, "pattern");
    if (pattern == nullptr) {
      throw_error(ErrorCode::kCorruptFile, "a Replace without \"pattern\"");
    }
    const double length = count_of(content);
    if (pattern->find("Regex") != nullptr) {
      // It may match nothing, between any two characters.
      grow(1 + length);
      return make_replace(compile_regex(json::string_of(*pattern, "Regex")), content);
    }
    const std::string& plain = json::string_of(*pattern, "String");
    grow(plain.empty() ? 1 + length : std::max(1.0, length / count_of(plain)));
    return make_replace(literal_regex(plain), content);
  }

  static NormalizerPtr bert(const json::Value& spec) {
    BertOptions options;
    options.clean_text = json::bool_of(spec, "clean_text");
    options.handle_chinese_chars = json::bool_of(spec, "handle_chinese_chars");
    options.lowercase = json::bool_of(spec, "lowercase");
    options.strip_accents = json::bool_of(spec, "strip_accents", options.lowercase);
    return make_bert(options);
  }

  void grow(double factor) {
    growth_ *= factor;
    if (growth_ > kMaxGrowth) {
      throw_error(ErrorCode::kLimitExceeded, "the normalizer makes a text more than ", kMaxGrowth,
                  " times longer");
    }
  }

  double growth_ = 1;
  int made_ = 0;
};

}  // namespace

std::unique_ptr<const Normalizer> make_normalizer(const json::Value& spec) {
  return spec.is_null() ? nullptr : Maker().make(spec, 0);
}

}  // namespace headrace::text
