#pragma once

// Greedy tokens of sequences of a tiny model.

#include <cstdint>
#include <string>
#include <vector>

#include "cpp/model/decoder_harness.h"
#include "cpp/model/golden_case.h"

namespace headrace {

inline std::string llama_folder() { return load_golden_case("llama").folder; }

inline std::vector<int32_t> prompt(int32_t length, int32_t first) {
  std::vector<int32_t> out;
  for (int32_t i = 0; i < length; ++i) out.push_back((first + 7 * i) % 60);
  return out;
}

using Rows = std::vector<std::vector<float>>;

/// Logits of `steps` greedy tokens of a sequence alone.
inline Rows generate_alone(DecoderHarness& harness, int32_t sequence,
                           const std::vector<int32_t>& tokens, int steps) {
  harness.start(sequence, static_cast<int32_t>(tokens.size()));
  Rows out = {harness.step({{sequence, tokens}}).back()};
  while (static_cast<int>(out.size()) < steps) {
    out.push_back(harness.step({{sequence, {argmax(out.back())}}}).front());
  }
  return out;
}

}  // namespace headrace
