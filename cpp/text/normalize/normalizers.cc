#include "text/normalize/normalizers.h"

#include <algorithm>
#include <utility>

#include "text/normalize/rewrite.h"
#include "text/normalize/transform.h"
#include "text/unicode/case.h"
#include "text/unicode/properties.h"
#include "text/unicode/utf8.h"
#include "text/vocab/byte_alphabet.h"

namespace headrace::text {
namespace {

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<NormalizerPtr> steps) : steps_(std::move(steps)) {}

  void apply(NormalText* text, Fuel* fuel) const override {
    for (const NormalizerPtr& step : steps_) {
      fuel->spend(1);
      step->apply(text, fuel);
    }
  }

 private:
  std::vector<NormalizerPtr> steps_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}

  void apply(NormalText* text, Fuel* fuel) const override {
    charge(text->size() + prefix_.size(), fuel);
    text->prepend(prefix_);
  }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(std::shared_ptr<const Regex> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void apply(NormalText* text, Fuel* fuel) const override {
    if (text->size() == 0) {
      return;  // no pattern is looked for in nothing
    }
    std::vector<Range> matches;
    pattern_->find_all(text->view(), 0, &matches, fuel);
    if (matches.empty()) {
      return;
    }
    fuel->spend(matches.size() * (1 + content_.size() / 2));
    NormalText::Writer writer(*text);
    size_t done = 0;
    for (const Range& match : matches) {
      writer.keep(done, match.begin);
      writer.put(content_, match.begin, match.end);
      done = match.end;
    }
    writer.keep(done, text->size());
    text->replace_by(std::move(writer));
  }

 private:
  std::shared_ptr<const Regex> pattern_;
  std::string content_;
};

class Form final : public Normalizer {
 public:
  explicit Form(NormalForm form) : form_(form) {}

  void apply(NormalText* text, Fuel* fuel) const override {
    charge(text->size(), fuel);
    FormSpan span = next_abnormal(text->view(), 0, form_);
    if (span.begin == text->size()) {
      return;
    }
    Transform transform(text);
    std::vector<FormChar> chars;
    size_t done = 0;
    while (span.begin < text->size()) {
      transform.keep(done, span.begin);
      fuel->spend((span.end - span.begin) / 4);
      normalize_span(text->view().substr(span.begin, span.end - span.begin), form_, &chars);
      for (const FormChar& c : chars) {
        transform.push(c.value, c.change);
      }
      done = span.end;
      span = next_abnormal(text->view(), done, form_);
    }
    transform.keep(done, text->size());
    transform.finish();
  }

 private:
  NormalForm form_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(NormalText* text, Fuel* fuel) const override {
    rewrite(text, fuel, [](char32_t value, std::string_view, std::string* out) {
      const CasedChars lower = lower_chars(value);
      if (lower.count == 1 && lower.values[0] == value) {
        return false;
      }
      for (size_t i = 0; i < lower.count; ++i) {
        append_utf8(lower.values[i], out);
      }
      return true;
    });
  }
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  void apply(NormalText* text, Fuel* fuel) const override {
    const std::string_view view = text->view();
    size_t begin = 0;
    size_t end = view.size();
    while (left_ && begin < end) {
      size_t next = begin;
      if (!has_flag(next_char(view, &next), kSpace)) {
        break;
      }
      begin = next;
    }
    while (right_ && end > begin) {
      size_t last = end - 1;
      while (utf8_continues(view[last])) {
        --last;
      }
      size_t at = last;
      if (!has_flag(next_char(view, &at), kSpace)) {
        break;
      }
      end = last;
    }
    if (begin == 0 && end == view.size()) {
      return;
    }
    charge(view.size(), fuel);
    NormalText::Writer writer(*text);
    writer.keep(begin, end);
    text->replace_by(std::move(writer));
  }

 private:
  bool left_;
  bool right_;
};

class StripAccents final : public Normalizer {
 public:
  void apply(NormalText* text, Fuel* fuel) const override {
    rewrite(text, fuel,
            [](char32_t value, std::string_view, std::string*) { return has_flag(value, kMark9); });
  }
};

/// sentencepiece's nmt rules without its forms: lists of code points.
class Nmt final : public Normalizer {
 public:
  void apply(NormalText* text, Fuel* fuel) const override {
    rewrite(text, fuel, [](char32_t c, std::string_view, std::string* out) {
      if ((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
          c == 0x8F || c == 0x9F) {
        return true;
      }
      const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 ||
                         c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
      if (space) {
        out->push_back(' ');
      }
      return space;
    });
  }
};

class ByteLevel final : public Normalizer {
 public:
  void apply(NormalText* text, Fuel* fuel) const override {
    charge(2 * text->size(), fuel);
    rewrite(text, fuel, [](char32_t value, std::string_view bytes, std::string* out) {
      if (value > 0x20 && value < 0x7F) {
        return false;
      }
      append_alphabet_spelling(bytes, out);
      return true;
    });
  }
};

}  // namespace

NormalizerPtr make_sequence(std::vector<NormalizerPtr> steps) {
  return std::make_unique<Sequence>(std::move(steps));
}
NormalizerPtr make_prepend(std::string prefix) {
  return std::make_unique<Prepend>(std::move(prefix));
}
NormalizerPtr make_replace(std::shared_ptr<const Regex> pattern, std::string content) {
  return std::make_unique<Replace>(std::move(pattern), std::move(content));
}
NormalizerPtr make_form(NormalForm form) { return std::make_unique<Form>(form); }
NormalizerPtr make_lowercase() { return std::make_unique<Lowercase>(); }
NormalizerPtr make_strip(bool left, bool right) { return std::make_unique<Strip>(left, right); }
NormalizerPtr make_strip_accents() { return std::make_unique<StripAccents>(); }
NormalizerPtr make_nmt() { return std::make_unique<Nmt>(); }
NormalizerPtr make_byte_level() { return std::make_unique<ByteLevel>(); }

}  // namespace headrace::text
