#include "text/decode/chain_run.h"

#include <utility>

#include "text/unicode/utf8.h"

namespace headrace::text {

ChainRun::ChainRun(const Decoder& decoder, bool at_start)
    : decoder_(&decoder), states_(decoder.streamed()) {
  for (size_t i = 0; i < states_.size(); ++i) {
    const Stage& stage = decoder.stages()[i];
    states_[i].seen = !at_start && stage.kind != StageKind::kSuffix;
    states_[i].left = at_start ? stage.start : 0;
  }
}

void ChainRun::feed(size_t stage, std::string_view token, std::string* text) {
  if (stage == states_.size()) {
    (decoder_->streams() ? text : &whole_)->append(token);
    return;
  }
  State& state = states_[stage];
  switch (decoder_->stages()[stage].kind) {
    case StageKind::kUtf8:
      feed_utf8(stage, token, text);
      break;
    case StageKind::kStripStart:
      feed_stripped(stage, token, text);
      break;
    case StageKind::kByteFallback:
      if (const int byte = byte_of(token); byte >= 0) {
        state.held += static_cast<char>(byte);
      } else {
        if (!state.held.empty()) flush_bytes(stage, text);
        feed(stage + 1, token, text);
      }
      break;
    case StageKind::kSuffix:
      if (state.seen) {
        state.held.swap(state.output);
        state.held.assign(token);
        apply_stage(decoder_->stages()[stage], false, false, &state.output);
        feed(stage + 1, state.output, text);
      } else {
        state.held.assign(token);
        state.seen = true;
      }
      break;
    default:
      apply(stage, token, text);
  }
}

void ChainRun::apply(size_t stage, std::string_view token, std::string* text) {
  State& state = states_[stage];
  state.output.assign(token);
  apply_stage(decoder_->stages()[stage], !state.seen, false, &state.output);
  state.seen = true;
  feed(stage + 1, state.output, text);
}

void ChainRun::feed_utf8(size_t stage, std::string_view bytes, std::string* text) {
  State& state = states_[stage];
  if (state.held.empty() && invalid_utf8_at(bytes) == kValid) {
    feed(stage + 1, bytes, text);
    return;
  }
  state.held.append(bytes);
  state.output.clear();
  state.held.erase(0, append_lossy(state.held, &state.output));
  feed(stage + 1, state.output, text);
}

void ChainRun::feed_stripped(size_t stage, std::string_view token, std::string* text) {
  State& state = states_[stage];
  const std::string& mark = decoder_->stages()[stage].pattern;
  while (state.left > 0 && !token.empty()) {
    if (!token.starts_with(mark)) {
      state.left = 0;
    } else {
      token.remove_prefix(mark.size());
      --state.left;
    }
  }
  feed(stage + 1, token, text);
}

void ChainRun::finish(std::string* text) {
  for (size_t stage = decoder_->alone(); stage < states_.size(); ++stage) flush(stage, text);
  if (decoder_->streams()) return;
  for (const Stage& stage : decoder_->stages().subspan(states_.size())) {
    apply_stage(stage, true, true, &whole_);
  }
  text->append(whole_);
  whole_.clear();
}

void ChainRun::flush(size_t stage, std::string* text) {
  State& state = states_[stage];
  const StageKind kind = decoder_->stages()[stage].kind;
  if (kind == StageKind::kByteFallback) {
    if (!state.held.empty()) flush_bytes(stage, text);
  } else if (kind == StageKind::kUtf8) {
    if (!state.held.empty()) feed(stage + 1, kReplacementText, text);
    state.held.clear();
  } else if (kind == StageKind::kSuffix && state.seen) {
    state.output = std::exchange(state.held, {});
    state.seen = false;
    apply_stage(decoder_->stages()[stage], false, true, &state.output);
    feed(stage + 1, state.output, text);
  }
}

void ChainRun::flush_bytes(size_t stage, std::string* text) {
  State& state = states_[stage];
  state.output = std::exchange(state.held, {});
  if (invalid_utf8_at(state.output) == kValid) {
    feed(stage + 1, state.output, text);
    return;
  }
  for (size_t i = state.output.size(); i > 0; --i) feed(stage + 1, kReplacementText, text);
}

bool ChainRun::holding() const noexcept {
  if (!whole_.empty()) return true;
  for (size_t i = decoder_->alone(); i < states_.size(); ++i) {
    const bool holds = decoder_->stages()[i].kind == StageKind::kSuffix ? states_[i].seen
                                                                        : !states_[i].held.empty();
    if (holds) return true;
  }
  return false;
}

}  // namespace headrace::text
