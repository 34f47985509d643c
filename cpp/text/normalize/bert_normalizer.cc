#include "text/normalize/normalizers.h"
#include "text/normalize/rewrite.h"
#include "text/unicode/properties.h"

namespace headrace::text {
namespace {

/// The blocks that BERT's authors took for Chinese.
bool is_chinese(char32_t c) noexcept {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

class Bert final : public Normalizer {
 public:
  explicit Bert(const BertOptions& options)
      : options_(options), decompose_(make_form(NormalForm::kNfd)), lowercase_(make_lowercase()) {}

  void apply(NormalText* text, Fuel* fuel) const override {
    if (options_.clean_text) {
      clean(text, fuel);
    }
    if (options_.handle_chinese_chars) {
      rewrite(text, fuel, [](char32_t value, std::string_view bytes, std::string* out) {
        if (!is_chinese(value)) {
          return false;
        }
        out->append(" ").append(bytes).append(" ");
        return true;
      });
    }
    if (options_.strip_accents) {
      decompose_->apply(text, fuel);
      rewrite(text, fuel, [](char32_t value, std::string_view, std::string*) {
        return has_flag(value, kNonspacing8);
      });
    }
    if (options_.lowercase) {
      lowercase_->apply(text, fuel);
    }
  }

 private:
  static void clean(NormalText* text, Fuel* fuel) {
    rewrite(text, fuel, [](char32_t value, std::string_view, std::string* out) {
      if (value > 0x20 && value < 0x7F) {
        return false;
      }
      const bool kept = value == '\t' || value == '\n' || value == '\r';
      if (!kept && (value == 0 || value == kReplacement || has_flag(value, kControl8))) {
        return true;
      }
      const bool space = value != ' ' && has_flag(value, kSpace);
      if (space) {
        out->push_back(' ');
      }
      return space;
    });
  }

  BertOptions options_;
  NormalizerPtr decompose_;
  NormalizerPtr lowercase_;
};

}  // namespace

NormalizerPtr make_bert(const BertOptions& options) { return std::make_unique<Bert>(options); }

}  // namespace headrace::text
