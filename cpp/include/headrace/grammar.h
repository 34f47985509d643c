#pragma once

// Constraints made from grammars (guided decoding).
//
// JSON schemas and regular expressions need nothing but Headrace:
//
//   headrace::GrammarCompiler compiler(vocabulary);
//   options.constraint = compiler.compile(headrace::GrammarKind::kRegex, "[0-9]+");
//
// Grammars need llguidance, which Headrace does not contain: GrammarCompiler loads a shared library
// with its C API at run time. The file in the PyPI package `llguidance` will do in a Python
// process; elsewhere, build the `llguidance` crate as a cdylib. All kinds then come from there.
//
//   headrace::GrammarCompiler compiler("libllguidance.so", vocabulary);

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headrace/abi.h"
#include "headrace/token_constraint.h"

namespace headrace::inline v0 {

/// What the ids of a vocabulary add to the text of an output.
struct VocabularyBytes {
  /// By id. "": nothing that a grammar could match; such an id is never allowed. The same goes for
  /// bytes that UTF-8 doesn't have.
  std::vector<std::string> tokens;
  /// Ids that add something else at the start of an output: a tokenizer may drop its first space.
  /// "": nothing, and the start is over. Bytes that UTF-8 doesn't have: not allowed there.
  std::vector<std::pair<int32_t, std::string>> first_tokens;
  /// Control tokens, with their names. They are no text: only a grammar that names them, as in
  /// "<|call|>", allows them.
  std::vector<std::pair<int32_t, std::string>> special_tokens;
  /// first_tokens holds after a special token, too.
  bool special_restarts = false;
};

enum class GrammarKind : uint8_t {
  kJsonSchema,  ///< a JSON schema, as JSON text
  kRegex,       ///< a regular expression (Rust's syntax) for the whole output
  kLark,        ///< a grammar in llguidance's variant of Lark
  kLlguidance,  ///< llguidance's own JSON form, a list of grammars
};

/// What a grammar may cost. Steps are those of llguidance, or of Headrace's own engine, which takes
/// about as many.
struct GrammarLimits {
  size_t max_schema_bytes = 256 << 10;  ///< text of a JSON schema
  size_t max_grammar_bytes = 64 << 10;  ///< text of anything else
  size_t max_grammar_size = 100'000;    ///< symbols in productions; nodes of a schema's automaton
  uint64_t compile_fuel = 1'000'000;    ///< steps that build the lexer; 50,000 take about 1 ms
  uint64_t token_fuel = 200'000;     ///< steps of the lexer for one token; 14,000 take about 1 ms
  size_t max_token_items = 50'000;   ///< items of the parser for one token
  size_t max_lexer_states = 50'000;  ///< over a whole output; one is 1-2 KiB
};

/// Compiles grammars for one vocabulary. Any thread may call any method.
///
/// The own engine reads of JSON schemas: type (also a list), enum, const, properties, required,
/// additionalProperties, patternProperties, propertyNames of a finite list or a pattern,
/// min/maxProperties, items, prefixItems (also `items` as a list, with additionalItems),
/// min/maxItems, min/maxLength, pattern, format (date-time, date, time, duration, email, hostname,
/// ipv4, ipv6, uuid, uri), minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf, allOf,
/// anyOf, oneOf (of branches that exclude each other), $ref within the text, nullable, and
/// x-guidance (whitespace_flexible, whitespace_pattern, item_separator, key_separator,
/// coerce_one_of). Annotations have no effect. It refuses every other keyword by name. Properties
/// come in the schema's order, others behind them; a name that is repeated among those counts twice
/// for min/maxProperties. A `pattern` has the brackets, \d and \w of JavaScript. Between the parts
/// of the JSON there may be a space, or a line break and an indent, unless x-guidance says
/// otherwise.
class HEADRACE_API GrammarCompiler {
 public:
  /// The own engine, for kJsonSchema and kRegex. Throws Error(kInvalidArgument) for a vocabulary
  /// that makes no sense.
  explicit GrammarCompiler(const VocabularyBytes& vocabulary, const GrammarLimits& limits = {});
  /// llguidance. `library`: path of the shared library. Throws Error: kNotFound if it can't be
  /// loaded, kUnsupported if it is no llguidance of a version this one works with, kInvalidArgument
  /// for a vocabulary that makes no sense.
  GrammarCompiler(const std::string& library, const VocabularyBytes& vocabulary,
                  const GrammarLimits& limits = {});
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  /// Takes up to some seconds for a grammar at its limits. The own engine keeps to the limits,
  /// whoever the grammar comes from. llguidance doesn't in all that it does: there a grammar of a
  /// stranger may take any time and memory, in a call that nothing ends, so try it in a process
  /// that the system limits. The result outlives the compiler.
  /// Throws Error: kInvalidArgument that says what is wrong with the grammar, over which limit it
  /// is, or that no token of the vocabulary can begin an output; from the own engine kUnsupported
  /// that names what of the grammar it can't do, or that the kind needs llguidance.
  std::shared_ptr<TokenConstraint> compile(GrammarKind kind, const std::string& text) const;

  /// What the library calls itself; "headrace" of the own engine.
  const std::string& library_version() const;

 private:
  class HEADRACE_LOCAL Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace::inline v0
