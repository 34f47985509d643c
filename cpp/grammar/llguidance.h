#pragma once

// The part of llguidance's C API that is used here, and the shared library it comes from.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace headrace::internal {

struct LlgTokenizer;
struct LlgMatcher;
struct LlgCancellation;

/// LlgTokenizerInitV2.
struct LlgTokenizerInit {
  size_t struct_size = sizeof(LlgTokenizerInit);
  uint32_t vocab_size = 0;
  uint32_t tok_eos = 0;
  const uint32_t* token_lens = nullptr;
  const uint8_t* token_bytes = nullptr;
  const char* tokenizer_json = nullptr;
  bool tokenize_assumes_string = false;
  void* tokenize_fn = nullptr;
  bool use_approximate_greedy_tokenize_fn = true;
  const void* tokenize_user_data = nullptr;
  const char* const* slices = nullptr;
  const uint32_t* tok_eos_extra = nullptr;
  uint32_t tok_eos_extra_count = 0;
};

struct LlgLimits {
  size_t max_items_in_row;
  uint64_t initial_lexer_fuel;
  uint64_t step_lexer_fuel;
  size_t step_max_items;
  size_t max_lexer_states;
  size_t max_grammar_size;
  bool precompute_large_lexemes;
  bool verbose_errors;
};

struct LlgConstraintInit {
  const LlgTokenizer* tokenizer;
  uint32_t log_buffer_level;
  uint32_t log_stderr_level;
  bool ff_tokens_ok;
  bool backtrack_ok;
  LlgLimits limits;
  std::byte later_fields[512];  // of newer versions, which may fill them in
};

/// The library's functions. One object per file and process; it is never unloaded.
class Llguidance {
 public:
  /// Throws Error: kNotFound, kUnsupported.
  static std::shared_ptr<const Llguidance> load(const std::string& path);

  const std::string& version() const noexcept { return version_; }
  /// With the library's defaults, silent.
  LlgConstraintInit constraint_init(const LlgTokenizer* tokenizer) const;

  LlgTokenizer* (*new_tokenizer)(const LlgTokenizerInit*, char* error, size_t error_size);
  void (*free_tokenizer)(LlgTokenizer*);
  /// Never null; see matcher_error.
  LlgMatcher* (*new_matcher)(const LlgConstraintInit*, const char* kind, const char* text);
  /// A copy that shares nothing.
  LlgMatcher* (*clone_matcher)(const LlgMatcher*);
  void (*free_matcher)(LlgMatcher*);
  /// Null: none.
  const char* (*matcher_error)(LlgMatcher*);
  size_t (*mask_bytes)(const LlgMatcher*);
  /// These return 0, or -1 for an error, after which the matcher is of no use.
  int32_t (*compute_mask)(LlgMatcher*, uint32_t* mask, size_t bytes);
  int32_t (*consume_token)(LlgMatcher*, uint32_t token);
  bool (*is_accepting)(LlgMatcher*);
  /// cancel(), from any thread, has the matcher's calls fail soon.
  LlgCancellation* (*get_cancellation)(LlgMatcher*);
  void (*cancel)(const LlgCancellation*);
  void (*free_cancellation)(LlgCancellation*);

 private:
  explicit Llguidance(const std::string& path);
  void check_version(const std::string& path) const;
  void check_layout(const std::string& path) const;

  const char* (*get_version_)();
  void (*set_defaults_)(LlgConstraintInit*, const LlgTokenizer*);
  std::string version_;
};

}  // namespace headrace::internal
