#pragma once

#include <cstdint>
#include <vector>

namespace headrace::inline v0 {

/// Which rows of a prompt, as they are after the model's final norm, make its embedding.
enum class Pooling : uint8_t {
  kLast,  ///< the last token's
  kMean,  ///< the mean of all, added up in the order of the tokens
  kCls,   ///< the first token's
};

/// What a request computes instead of text: a vector for its prompt, or logits behind it. Values
/// are validated by Engine::submit, which throws Error(kInvalidArgument) naming the field, its
/// value and its range.
struct PoolingParams {
  /// kMean and kCls need rows that a cached prefix has not: such requests read nothing from the
  /// prefix cache.
  Pooling pooling = Pooling::kLast;
  /// The first so many numbers (Matryoshka), 1..hidden_size, with use_head 1..head_outputs; 0 =
  /// all.
  int32_t dimensions = 0;
  bool normalize = true;  ///< then divided by their Euclidean norm; a vector of zeros stays
  /// Not empty: instead, the model's logits for these tokens behind the prompt, in this order
  /// (rerankers). 1..64 ids within the vocabulary; pooling is kLast, dimensions 0 and normalize
  /// false then.
  std::vector<int32_t> logit_token_ids{};
  /// What was pooled goes through the checkpoint's layers behind pooling first: a classifier's,
  /// which give its labels' logits, or Dense modules of sentence-transformers. Only if
  /// ModelInfo::head_outputs isn't 0.
  bool use_head = false;
  /// Where the second of two texts begins in the prompt: its tokens have type 1, all others 0. 0:
  /// nowhere. Only if ModelInfo::tells_pairs.
  int32_t second_text_at = 0;
};

}  // namespace headrace::inline v0
