#include "text/decode/detokenizer.h"

#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "headrace/text.h"
#include "headrace/text_output.h"

namespace headrace {

class Detokenizer::Impl {
 public:
  /// REQUIRES: decoder != null.
  Impl(std::shared_ptr<const text::TokenDecoder> decoder, const DetokenizerOptions& options)
      : decoder_(std::move(decoder)),
        run(*decoder_, {.skip_special = options.skip_special_tokens,
                        .shown = options.shown,
                        .after = options.after}) {}

  bool streams() const noexcept {
    return decoder_->chain() == nullptr || decoder_->chain()->streams();
  }

 private:
  std::shared_ptr<const text::TokenDecoder> decoder_;

 public:
  text::Detokenizer run;
};

Detokenizer::Detokenizer() = default;
Detokenizer::Detokenizer(const Tokenizer& tokenizer, const DetokenizerOptions& options)
    : Detokenizer(tokenizer.decoder(), options) {}
Detokenizer::Detokenizer(std::shared_ptr<const text::TokenDecoder> decoder,
                         const DetokenizerOptions& options) {
  if (decoder == nullptr) {
    throw_error(ErrorCode::kInvalidArgument,
                "a detokenizer needs a token decoder; Detokenizer() is for models without one");
  }
  impl_ = std::make_unique<Impl>(std::move(decoder), options);
}
Detokenizer::~Detokenizer() = default;
Detokenizer::Detokenizer(const Detokenizer& other)
    : impl_(other.impl_ == nullptr ? nullptr : std::make_unique<Impl>(*other.impl_)) {}
Detokenizer::Detokenizer(Detokenizer&& other) noexcept = default;
Detokenizer& Detokenizer::operator=(const Detokenizer& other) { return *this = Detokenizer(other); }
Detokenizer& Detokenizer::operator=(Detokenizer&& other) noexcept = default;

std::string Detokenizer::push(int32_t id) {
  std::string text;
  if (impl_ != nullptr) impl_->run.push(id, &text);
  return text;
}

std::string Detokenizer::finish() {
  std::string text;
  if (impl_ != nullptr) impl_->run.finish(&text);
  return text;
}

bool Detokenizer::streams() const noexcept { return impl_ == nullptr || impl_->streams(); }

bool Detokenizer::holding() const noexcept { return impl_ != nullptr && impl_->run.holding(); }

}  // namespace headrace
