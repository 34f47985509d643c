#pragma once

// Step 2 of encoding: what changes a text before it is cut up.

#include <memory>

#include "text/fuel.h"
#include "text/json/value.h"
#include "text/normalize/normal_text.h"

namespace headrace::text {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// Changes the text as the component of that name in the `tokenizers` package does. Throws
  /// Error(kLimitExceeded): too many steps, or growth beyond what tokenizer files may ask for.
  virtual void apply(NormalText* text, Fuel* fuel) const = 0;
};

/// From a `normalizer` of tokenizer.json: an object with "type"; Sequences, too. Null for null.
/// Throws Error(kUnsupported) that names the component, Error(kCorruptFile).
std::unique_ptr<const Normalizer> make_normalizer(const json::Value& spec);

}  // namespace headrace::text
