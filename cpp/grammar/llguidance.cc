#include "grammar/llguidance.h"

#include <dlfcn.h>

#include <charconv>
#include <string_view>

#include "base/check.h"

namespace headrace::internal {

namespace {

constexpr std::string_view kVersionPrefix = "llguidance@1.";
constexpr int kOldestMinor = 9;

void* open_library(const std::string& path) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    throw_error(ErrorCode::kNotFound, "the llguidance library '", path,
                "' can't be loaded: ", why == nullptr ? "unknown reason" : why);
  }
  return handle;
}

template <class Function>
void resolve(void* library, const std::string& path, const char* name, Function& out) {
  void* const symbol = dlsym(library, name);
  if (symbol == nullptr) {
    throw_error(ErrorCode::kUnsupported, "'", path, "' is no llguidance library of version 1.",
                kOldestMinor, " or later: it has no ", name, ".");
  }
  out = reinterpret_cast<Function>(symbol);
}

}  // namespace

std::shared_ptr<const Llguidance> Llguidance::load(const std::string& path) {
  return std::shared_ptr<const Llguidance>(new Llguidance(path));
}

Llguidance::Llguidance(const std::string& path) {
  void* const library = open_library(path);
  resolve(library, path, "llg_get_version", get_version_);
  resolve(library, path, "llg_constraint_init_set_defaults", set_defaults_);
  resolve(library, path, "llg_new_tokenizer_v2", new_tokenizer);
  resolve(library, path, "llg_free_tokenizer", free_tokenizer);
  resolve(library, path, "llg_new_matcher", new_matcher);
  resolve(library, path, "llg_clone_matcher", clone_matcher);
  resolve(library, path, "llg_free_matcher", free_matcher);
  resolve(library, path, "llg_matcher_get_error", matcher_error);
  resolve(library, path, "llg_matcher_get_mask_byte_size", mask_bytes);
  resolve(library, path, "llg_matcher_compute_mask_into", compute_mask);
  resolve(library, path, "llg_matcher_consume_token", consume_token);
  resolve(library, path, "llg_matcher_is_accepting", is_accepting);
  resolve(library, path, "llg_matcher_get_cancellation_handle", get_cancellation);
  resolve(library, path, "llg_cancel", cancel);
  resolve(library, path, "llg_free_cancellation_handle", free_cancellation);
  const char* const version = get_version_();
  version_ = version == nullptr ? "" : version;
  check_version(path);
  check_layout(path);
}

void Llguidance::check_version(const std::string& path) const {
  const std::string_view text = version_;
  int minor = -1;
  if (text.starts_with(kVersionPrefix)) {
    std::from_chars(text.data() + kVersionPrefix.size(), text.data() + text.size(), minor);
  }
  if (minor < kOldestMinor) {
    throw_error(ErrorCode::kUnsupported, "'", path, "' is '", version_, "': llguidance 1.x from 1.",
                kOldestMinor, " on is needed.");
  }
}

// The struct carries no version: a library that lays it out otherwise gives itself away here.
void Llguidance::check_layout(const std::string& path) const {
  const LlgTokenizer* const mark = reinterpret_cast<const LlgTokenizer*>(this);
  LlgConstraintInit init{};
  set_defaults_(&init, mark);
  const LlgLimits& limits = init.limits;
  const auto plausible = [](uint64_t limit) { return limit >= 1'000 && limit <= 1'000'000'000; };
  if (init.tokenizer != mark || init.log_buffer_level > 2 || init.log_stderr_level > 2 ||
      init.ff_tokens_ok || init.backtrack_ok || !plausible(limits.max_items_in_row) ||
      !plausible(limits.initial_lexer_fuel) || !plausible(limits.step_lexer_fuel) ||
      !plausible(limits.step_max_items) || !plausible(limits.max_lexer_states) ||
      !plausible(limits.max_grammar_size)) {
    throw_error(ErrorCode::kUnsupported, "'", path, "' (", version_,
                ") has a C interface that this version of Headrace doesn't know.");
  }
}

LlgConstraintInit Llguidance::constraint_init(const LlgTokenizer* tokenizer) const {
  LlgConstraintInit init{};
  set_defaults_(&init, tokenizer);
  init.log_buffer_level = init.log_stderr_level = 0;
  init.limits.verbose_errors = false;
  return init;
}

}  // namespace headrace::internal
