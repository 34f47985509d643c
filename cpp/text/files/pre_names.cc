#include "text/files/pre_names.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "headrace/status.h"

namespace headrace::text {

namespace {

enum class WordRules : uint8_t {
  kGpt2,
  kDigitsGpt2,
  kLlama3,
  kQwen2,
  kQwen35,
  kO200k,
  kTekken,
  kDeepSeek3,
  kKimi
};

struct PreName {
  std::string_view name;
  WordRules words;
  bool ignore_merges = false;
  bool nfc = false;
};

constexpr std::array kPreNames = {
    PreName{"gpt-2", WordRules::kGpt2},
    PreName{"phi-2", WordRules::kGpt2},
    PreName{"olmo", WordRules::kGpt2},
    PreName{"mpt", WordRules::kGpt2},
    PreName{"trillion", WordRules::kGpt2},
    PreName{"granite-docling", WordRules::kGpt2},
    PreName{"exaone4", WordRules::kGpt2},
    PreName{"smollm", WordRules::kDigitsGpt2},
    PreName{"starcoder", WordRules::kDigitsGpt2},
    PreName{"refact", WordRules::kDigitsGpt2},
    PreName{"command-r", WordRules::kDigitsGpt2},
    PreName{"codeshell", WordRules::kDigitsGpt2},
    PreName{"exaone", WordRules::kDigitsGpt2},
    PreName{"minerva-7b", WordRules::kDigitsGpt2},
    PreName{"llama-bpe", WordRules::kLlama3, true},
    PreName{"llama3", WordRules::kLlama3, true},
    PreName{"llama-v3", WordRules::kLlama3, true},
    PreName{"falcon3", WordRules::kLlama3, true},
    PreName{"pixtral", WordRules::kLlama3, true},
    PreName{"lfm2", WordRules::kLlama3, true},
    PreName{"dbrx", WordRules::kLlama3},
    PreName{"smaug-bpe", WordRules::kLlama3},
    PreName{"glm4", WordRules::kLlama3, true},
    PreName{"chatglm-bpe", WordRules::kLlama3},
    PreName{"qwen2", WordRules::kQwen2, false, true},
    PreName{"deepseek-r1-qwen", WordRules::kQwen2},
    PreName{"megrez", WordRules::kQwen2},
    PreName{"stablelm2", WordRules::kQwen2},
    PreName{"hunyuan", WordRules::kQwen2},
    PreName{"grok-2", WordRules::kQwen2},
    PreName{"qwen35", WordRules::kQwen35, false, true},
    PreName{"gpt-4o", WordRules::kO200k},
    PreName{"llama4", WordRules::kO200k},
    PreName{"minimax-m2", WordRules::kO200k},
    PreName{"tekken", WordRules::kTekken, true},
    PreName{"deepseek-v3", WordRules::kDeepSeek3},
    PreName{"hunyuan-dense", WordRules::kDeepSeek3},
    PreName{"joyai-llm", WordRules::kDeepSeek3},
    PreName{"kimi-k2", WordRules::kKimi},
};

constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kContractions = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))";
constexpr std::string_view kSpaces = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// cl100k's form, with what its letters and numbers are.
std::string cl100k_words(std::string_view letters, std::string_view numbers,
                         std::string_view others) {
  return str_cat(kContractions, R"(|[^\r\n\p{L}\p{N}]?)", letters, "+|", numbers, "| ?", others,
                 R"(+[\r\n]*)", kSpaces);
}

/// o200k's: words of capitals, then small letters. `without`: characters that are no letters.
std::string o200k_words(std::string_view contractions, std::string_view numbers,
                        std::string_view without, std::string_view newlines) {
  const std::string upper = str_cat(R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M})", without, "]");
  const std::string lower = str_cat(R"([\p{Ll}\p{Lm}\p{Lo}\p{M})", without, "]");
  constexpr std::string_view kFirst = R"([^\r\n\p{L}\p{N}]?)";
  return str_cat(kFirst, upper, "*", lower, "+", contractions, "|", kFirst, upper, "+", lower, "*",
                 contractions, "|", numbers, R"(| ?[^\s\p{L}\p{N}]+)", newlines, "*", kSpaces);
}

std::vector<std::string> patterns_of(WordRules words) {
  const std::string contraction = str_cat(kContractions, "?");
  switch (words) {
    case WordRules::kGpt2:
    case WordRules::kDigitsGpt2:
      return {std::string(kGpt2Words)};
    case WordRules::kLlama3:
      return {cl100k_words(R"(\p{L})", R"(\p{N}{1,3})", R"([^\s\p{L}\p{N}])")};
    case WordRules::kQwen2:
      return {cl100k_words(R"(\p{L})", R"(\p{N})", R"([^\s\p{L}\p{N}])")};
    case WordRules::kQwen35:
      return {cl100k_words(R"([\p{L}\p{M}])", R"(\p{N})", R"([^\s\p{L}\p{M}\p{N}])")};
    case WordRules::kO200k:
      return {o200k_words(contraction, R"(\p{N}{1,3})", "", R"([\r\n/])")};
    case WordRules::kTekken:
      return {o200k_words("", R"(\p{N})", "", R"([\r\n/])")};
    case WordRules::kKimi:
      return {R"([\p{Han}]+|)" +
              o200k_words(contraction, R"(\p{N}{1,3})", R"(&&[^\p{Han}])", R"([\r\n])")};
    case WordRules::kDeepSeek3:
      // The newlines in its brackets stand there as themselves.
      return {R"(\p{N}{1,3})", "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
              str_cat(R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)",
                      "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|",
                      "\\s*[\r\n]+|\\s+(?!\\S)|\\s+")};
  }
  return {};
}

}  // namespace

void set_pre(std::string_view name, TokenizerTables* tables) {
  std::string known;
  for (const PreName& pre : kPreNames) {
    if (pre.name == name) {
      tables->split = patterns_of(pre.words);
      tables->digits_first = pre.words == WordRules::kDigitsGpt2;
      tables->ignore_merges = pre.ignore_merges;
      tables->nfc = pre.nfc;
      return;
    }
    known += known.empty() ? "" : ", ";
    known += pre.name;
  }
  throw_error(ErrorCode::kUnsupported, "how this tokenizer cuts texts into words isn't known: \"",
              name, "\"; known are ", known);
}

}  // namespace headrace::text
