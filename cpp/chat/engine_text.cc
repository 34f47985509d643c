// Engine's methods of texts.

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "chat/model_text.h"
#include "chat/text_reader.h"
#include "engine/engine_impl.h"
#include "headrace/chat.h"
#include "headrace/grammar.h"
#include "headrace/text.h"
#include "headrace/text_output.h"

namespace headrace {
namespace {

constexpr size_t kMostStopStrings = 1024;
constexpr size_t kMostStopBytes = 1 << 16;

std::shared_ptr<chat::ModelText> text_of(internal::ServedModel& model) {
  return std::static_pointer_cast<chat::ModelText>(
      model.companion([&] { return std::make_shared<chat::ModelText>(model.info().path); }));
}

std::optional<StopStrings> checked_stops(const std::vector<std::string>& stops) {
  if (stops.empty()) return std::nullopt;
  size_t bytes = 0;
  for (const std::string& stop : stops) bytes += stop.size();
  if (stops.size() > kMostStopStrings || bytes > kMostStopBytes) {
    throw_error(ErrorCode::kInvalidArgument, "stop has ", stops.size(), " strings of ", bytes,
                " bytes in all: ", kMostStopStrings, " of ", kMostStopBytes, " are allowed");
  }
  return StopStrings(stops);
}

void check_request(const RequestOptions& request) {
  const auto refuse = [](const char* field, const char* why) {
    throw_error(ErrorCode::kInvalidArgument, "request.", field, " must be empty: ", why);
  };
  if (!request.prompt_token_ids.empty()) refuse("prompt_token_ids", "the text is the prompt");
  if (request.pooling) refuse("pooling", "an embedding is no text; submit the prompt's ids");
  if (!request.media.empty()) refuse("media", "items have places among ids; submit these");
}

/// The text of an output. `after`: the ids that it goes on from; none if it is a text of its own.
OutputText output_text(const Tokenizer& tokenizer, const TextOptions& options,
                       std::vector<int32_t> after) {
  DetokenizerOptions detokenizing;
  detokenizing.skip_special_tokens = options.skip_special_tokens;
  detokenizing.after = std::move(after);
  const int32_t min_tokens = options.request.sampling.min_tokens;
  OutputTextOptions ending;
  ending.min_tokens = min_tokens > 0 ? static_cast<size_t>(min_tokens) : 0;
  ending.keeps_string = options.include_stop_string;
  ending.cuts_tokens = false;  // each token is given when it comes
  return OutputText(Detokenizer(tokenizer, detokenizing), checked_stops(options.stop), ending);
}

struct Prepared {
  RequestOptions request;
  OutputText text;
};

/// `goes_on`: the output's text goes on from the prompt's.
Prepared prepare(internal::ServedModel& model, std::string_view prompt, TextOptions options,
                 bool goes_on) {
  check_request(options.request);
  const auto tokenizer = text_of(model)->tokenizer();
  EncodeOptions encoding;
  encoding.add_special = options.add_special_tokens;
  encoding.max_tokens = static_cast<size_t>(model.info().max_model_len);
  std::vector<int32_t> ids;
  tokenizer->encode(prompt, encoding, &ids);
  const bool own = !goes_on || options.request.constraint != nullptr;
  OutputText text = output_text(*tokenizer, options, own ? std::vector<int32_t>() : ids);
  options.request.prompt_token_ids = std::move(ids);
  return {std::move(options.request), std::move(text)};
}

TextStream stream_of(const Request& request, OutputText text) {
  return TextStream(std::make_shared<internal::TextReader>(request, std::move(text)));
}

}  // namespace

std::shared_ptr<const Tokenizer> Engine::tokenizer(const std::string& name) const {
  return text_of(*impl_->find(name))->tokenizer();
}

std::shared_ptr<TokenConstraint> Engine::compile_grammar(const std::string& name, GrammarKind kind,
                                                         const std::string& text) const {
  return text_of(*impl_->find(name))->grammars()->compile(kind, text);
}

std::shared_ptr<const ChatTemplates> Engine::chat_templates(const std::string& name) const {
  return text_of(*impl_->find(name))->templates();
}

TextStream Engine::submit_chat(const std::string& name, std::string_view messages_json,
                               TextOptions options, const ChatOptions& chat) {
  const auto model = impl_->find(name);
  const std::string prompt = text_of(*model)->templates()->render(messages_json, chat);
  const bool opens_answer = chat.add_generation_prompt && !chat.continue_final_message;
  Prepared made = prepare(*model, prompt, std::move(options), /*goes_on=*/!opens_answer);
  return stream_of(impl_->submit(*model, std::move(made.request)), std::move(made.text));
}

TextStream Engine::submit_chat(const std::string& name, std::string_view messages_json,
                               TextOptions options) {
  return submit_chat(name, messages_json, std::move(options), {});
}

TextStream Engine::submit_chat(const std::string& name, std::string_view messages_json) {
  return submit_chat(name, messages_json, {}, {});
}

TextStream Engine::submit_text(const std::string& name, std::string_view prompt,
                               TextOptions options) {
  const auto model = impl_->find(name);
  Prepared made = prepare(*model, prompt, std::move(options), /*goes_on=*/true);
  return stream_of(impl_->submit(*model, std::move(made.request)), std::move(made.text));
}

TextStream Engine::submit_text(const std::string& name, std::string_view prompt) {
  return submit_text(name, prompt, {});
}

}  // namespace headrace
