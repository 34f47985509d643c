#pragma once

// Reads tests/golden: what transformers answers for each tiny checkpoint (see its README.md).

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/config/model_config.h"

namespace headrace {

struct GoldenPrompt {
  std::vector<int32_t> prompt;
  std::vector<int32_t> tokens;         ///< greedy continuation
  std::vector<float> logits;           ///< [steps, vocabulary]
  std::vector<float> token_logprobs;   ///< [tokens]
  std::vector<float> prompt_logprobs;  ///< [prompt - 1]
};

/// Errors of transformers' own bfloat16 run against its float32 one.
struct Bfloat16Error {
  bool present = false;
  double logits_max = 0.0;  ///< the larger of its two attention variants
  double logits_rms = 0.0;  ///< of the default variant
};

struct GoldenCase {
  std::string name;
  std::filesystem::path folder;
  std::string storage;  ///< dtype of the file
  std::string twin_of;  ///< the case with the same weights in the other layout, or ""
  std::vector<int32_t> steps;
  std::vector<float> inv_freq;
  double attention_factor = 1.0;
  double logit_tolerance = 0.0, logprob_tolerance = 0.0;
  bool routed = false;  ///< layers have experts
  Bfloat16Error bfloat16;
  std::vector<GoldenPrompt> prompts;
};

/// What the MTP block of a case must guess (make_mtp.py).
struct GoldenGuesses {
  struct Sequence {
    std::vector<int32_t> tokens;
    std::vector<int32_t> argmax;   ///< at each position but the last; -1: it is not clear
    std::vector<int32_t> rows;     ///< positions whose logits are there
    std::vector<float> logits;     ///< [rows, vocabulary]
    std::vector<int32_t> guesses;  ///< behind the last token, each fed back
    std::vector<float> chain;      ///< [guesses - 1, vocabulary] of all but the first
  };
  double tolerance = 0.0;
  std::vector<Sequence> sequences;
};
GoldenGuesses load_golden_guesses(const GoldenCase& golden);

/// A file's text, and the float32 arrays of a safetensors file by name. Throws if it can't be read.
std::string read_golden_text(const std::filesystem::path& path);
std::map<std::string, std::vector<float>> read_golden_arrays(const std::filesystem::path& path);

/// Names of all cases, sorted, but those of families that nothing serves yet (unserved.txt).
std::vector<std::string> golden_case_names();

/// Whether `count` devices can share a golden model: its heads, norms, widths and states.
bool can_share(const ModelConfig& config, int32_t count);
GoldenCase load_golden_case(const std::string& name);

}  // namespace headrace
