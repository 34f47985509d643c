#include <string>

#include "text/regex/regex.h"

namespace headrace::text {

namespace {

class Literal final : public Regex {
 public:
  explicit Literal(std::string_view text) : text_(text) {}

  std::optional<Range> find(std::string_view text, size_t from, Fuel* fuel) const override {
    const size_t at = text.find(text_, from);
    const size_t end = at == std::string_view::npos ? text.size() : at + text_.size();
    fuel->spend(1 + (end - from) / 16);
    if (at == std::string_view::npos) {
      return std::nullopt;
    }
    return Range{static_cast<uint32_t>(at), static_cast<uint32_t>(end)};
  }

 private:
  std::string text_;
};

}  // namespace

std::shared_ptr<const Regex> literal_regex(std::string_view text) {
  return std::make_shared<Literal>(text);
}

}  // namespace headrace::text
