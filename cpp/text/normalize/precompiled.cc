#include <utility>

#include "text/normalize/normalizers.h"
#include "text/normalize/rewrite.h"
#include "text/normalize/transform.h"
#include "text/unicode/graphemes.h"

namespace headrace::text {
namespace {

size_t count_chars(std::string_view text) noexcept {
  size_t count = 0;
  for (const char byte : text) {
    count += !utf8_continues(byte);
  }
  return count;
}

/// A rule as the `tokenizers` package takes it, which isn't sentencepiece's way: by grapheme
/// cluster. One of under 6 bytes that begins with a rule's text is replaced as a whole, by the
/// shortest such rule. Else each of its characters is.
class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(Charsmap map) : map_(std::move(map)) {}

  void apply(NormalText* text, Fuel* fuel) const override {
    charge(2 * text->size(), fuel);
    const std::string_view view = text->view();
    Transform transform(text);
    bool modified = false;
    const auto replace = [&](std::string_view old) {
      const auto rule = map_.shortest(old);
      if (rule) {
        fuel->spend(rule->content.size());
        put(*rule, old, &transform);
        modified = true;
      }
      return rule.has_value();
    };
    for (size_t at = 0; at < view.size();) {
      if (const size_t quiet = quiet_end(view, at); quiet > at) {
        transform.keep(at, quiet);
        at = quiet;
        continue;
      }
      const size_t end = grapheme_end(view, at);
      if (end - at >= kShortCluster || !replace(view.substr(at, end - at))) {
        for (size_t next = at; next < end;) {
          const size_t begin = next;
          const char32_t value = next_char(view, &next);
          if (!replace(view.substr(begin, next - begin))) {
            transform.push(value, 0);
          }
        }
      }
      at = end;
    }
    if (modified) {
      transform.finish();
    }
  }

 private:
  static constexpr size_t kShortCluster = 6;

  /// The end of the ASCII without rules that begins at `at`. Behind its last character is more of
  /// it, so that nothing extends one.
  size_t quiet_end(std::string_view text, size_t at) const noexcept {
    const auto is_ascii = [&](size_t i) { return static_cast<uint8_t>(text[i]) < 0x80; };
    while (at + 1 < text.size() && is_ascii(at) && is_ascii(at + 1) && !map_.begins(text[at])) {
      ++at;
    }
    return at;
  }

  /// The last of the new characters are insertions if there are more than old ones; if there are
  /// fewer, the last one uses up the rest.
  static void put(const Charsmap::Rule& rule, std::string_view old, Transform* transform) {
    const size_t old_count = count_chars(old);
    size_t count = 0;
    for (size_t at = 0; at < rule.content.size(); ++count) {
      transform->push(next_char(rule.content, &at), count >= old_count);
    }
    if (count < old_count) {
      transform->shrink(static_cast<int32_t>(old_count - count));
    }
  }

  Charsmap map_;
};

}  // namespace

NormalizerPtr make_precompiled(Charsmap map) {
  return std::make_unique<Precompiled>(std::move(map));
}

}  // namespace headrace::text
