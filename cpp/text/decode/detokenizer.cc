#include "text/decode/detokenizer.h"

#include <algorithm>
#include <ranges>
#include <string_view>
#include <utility>

namespace headrace::text {

namespace {

std::variant<ChainRun, PieceRun> fresh_run(const TokenDecoder& decoder) {
  if (const Decoder* chain = decoder.chain()) return ChainRun(*chain);
  return PieceRun(/*at_start=*/true);
}

}  // namespace

Detokenizer::Detokenizer(const TokenDecoder& decoder, const DetokenizeOptions& options)
    : decoder_(&decoder), skip_special_(options.skip_special), run_(fresh_run(decoder)) {
  for (const auto& [id, text] : decoder.skipped()) {
    if (std::ranges::find(options.shown, text) != options.shown.end()) shown_.push_back(id);
  }
  if (auto* run = std::get_if<ChainRun>(&run_)) {
    go_on_from(options.after, run);
  } else {
    run_ = PieceRun(starts_behind(options.after));
  }
}

void Detokenizer::go_on_from(std::span<const int32_t> ids, ChainRun* run) {
  const auto counts = [&](int32_t id) {
    const TokenDecoder::Token token = decoder_->at(id);
    return token.known && !hides(id, token);
  };
  const auto backwards = ids | std::views::reverse;
  const auto last = std::ranges::find_if(backwards, counts);
  if (last == backwards.end()) return;
  const Decoder& chain = *decoder_->chain();
  std::string before(decoder_->at(*last).bytes);
  if (byte_of(before) >= 0) {  // a run of bytes ends with the prompt
    before = "a";
    chain.prepare(&before);
  }
  std::string settled;
  run->push(before, &settled);
  ChainRun alone = *run;
  alone.finish(&earlier_);
}

bool Detokenizer::starts_behind(std::span<const int32_t> ids) const noexcept {
  for (const int32_t id : ids | std::views::reverse) {
    const TokenDecoder::Token token = decoder_->at(id);
    if (token.cuts) return true;
    if (token.is_byte || token.ends_start) return false;
  }
  return true;
}

bool Detokenizer::hides(int32_t id, const TokenDecoder::Token& token) const noexcept {
  return skip_special_ && token.skipped && !std::ranges::binary_search(shown_, id);
}

void Detokenizer::push(int32_t id, std::string* text) {
  const TokenDecoder::Token token = decoder_->at(id);
  if (auto* run = std::get_if<PieceRun>(&run_)) {
    run->push(token, hides(id, token), text);
    return;
  }
  if (!token.known || hides(id, token)) return;
  auto& run = std::get<ChainRun>(run_);
  if (earlier_.empty()) [[likely]] {
    run.push(token.bytes, text);
    return;
  }
  std::string settled;
  run.push(token.bytes, &settled);
  append_own(settled, text);
}

void Detokenizer::finish(std::string* text) {
  std::string settled;
  std::visit([&](auto& run) { run.finish(&settled); }, run_);
  append_own(settled, text);
}

void Detokenizer::append_own(const std::string& settled, std::string* text) {
  std::string_view own = settled;
  if (!earlier_.empty() && !own.empty()) {
    if (own.starts_with(earlier_)) own.remove_prefix(earlier_.size());
    earlier_.clear();
  }
  text->append(own);
}

bool Detokenizer::holding() const noexcept {
  return std::visit([](const auto& run) { return run.holding(); }, run_);
}

}  // namespace headrace::text
