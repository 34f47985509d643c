#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/contract/backend.h"
#include "model/config/model_config.h"
#include "model/config/quantization.h"
#include "model/sources/cache_layout.h"
#include "model/sources/model_sources.h"
#include "model/weights/weight_reader.h"

namespace headrace {

struct MtpStep;

struct DecoderOptions {
  DType storage = DType::kF32;  ///< dtype of unquantized weights
  Quantization quantization;
  int32_t max_rows = 512;       ///< T of the largest step
  int32_t max_logit_rows = 64;  ///< S of the largest forward() or logits() call
  int32_t max_loras = 0;        ///< adapters in one step, 0..256
  int32_t max_lora_rank = 64;   ///< 1..4096
  int32_t max_kept_rows = 0;    ///< rows of Decoder::keep, 0..2^24
  bool dummy_weights = false;   ///< pseudo-random weights; the checkpoint may be null
  float dummy_spread = 0.02f;   ///< their standard deviation (norms are 1)
  RankPlace rank = {};          ///< which rank, if several backends compute the model together
};

class LoraAdapter;

/// A decoder-only transformer. ModelConfig drives one forward for all families. The decoder owns
/// its weights and its scratch memory; forward() allocates nothing.
class Decoder {
 public:
  /// Weights come from `reader`, which may end after this call. `sources` are list_sources() of the
  /// config. Throws what the reader throws, and Error(kInvalidArgument) for options out of range.
  /// `backend` must outlive the decoder. For a rank, sources and config are share_sources() and
  /// share_config(), and the backend has joined the other ranks' group. Every method that computes
  /// is then called for all ranks at once, each on its own thread, with the same arguments except
  /// for objects that live on the backend.
  Decoder(Backend& backend, const ModelConfig& config, const ModelSources& sources,
          WeightReader& reader, const DecoderOptions& options);
  ~Decoder();

  /// Computes a step: writes keys and values of every row, and returns logits [S, V] f32 of
  /// batch.logit_rows (may be empty). They are valid until the next call of forward() or logits(),
  /// and the adapters must live until then. SeqSlice::adapter is an index into `adapters`. Given
  /// rows have the embeddings of the batch, for all chunkings. REQUIRES: 1 <= T <= max_rows, S <=
  /// max_logit_rows, token ids in [0, vocab_size), a cache of a cache_layout(), adapters loaded
  /// for this model, at most max_loras of them, and none with a rank above max_lora_rank. Only the
  /// first rank has the logits: those of other ranks are [S, 0].
  TensorView forward(const StepBatch& batch, std::span<const LoraAdapter* const> adapters,
                     KvCache& cache);
  /// Without adapters.
  TensorView forward(const StepBatch& batch, KvCache& cache) { return forward(batch, {}, cache); }
  /// Logits [rows.size(), V] of other rows of the last step. Prompt log-probabilities need more
  /// than max_logit_rows and are read in several calls. Overwrites the logits returned before.
  /// `rows` ascend and are at most max_logit_rows.
  TensorView logits(std::span<const int32_t> rows);

  /// Rows of the last step after the final norm, [rows.size(), H] act; times the head they are the
  /// logits. `rows` are all rows, or up to max_logit_rows that ascend. Valid until the next call of
  /// any method here. REQUIRES: hidden() of all rows is called at most once, unless the step had
  /// StepBatch::all_hidden.
  TensorView hidden(std::span<const int32_t> rows);

  /// What the model's layers behind pooling make of rows [n, H], float32 in host memory, which are
  /// rounded to act: [n, outputs] act, until the next call of any method here. REQUIRES: a
  /// ModelConfig::pool_head, n from 1 to max_logit_rows, and of several ranks the first.
  TensorView read_pool_head(std::span<const float> pooled);

  /// For a model with an MTP block (ModelConfig::uses_mtp), see mtp_block.h. guess() computes rows
  /// of the block and returns logits like forward(), within the same limits; the cache is the
  /// model's. REQUIRES, for input kStep and for keep(): the last forward() had
  /// StepBatch::all_hidden, and no guess() has come since.
  TensorView guess(const MtpStep& step, KvCache& cache);
  /// Copies rows of the last step after the final norm to places [first, first + rows.size()) of
  /// the max_kept_rows kept rows.
  void keep(std::span<const int32_t> rows, int64_t first);

  const ModelConfig& config() const;
  /// What its layers keep: a rank's its part.
  CacheLayout cache_layout(const CacheOptions& options) const;
  size_t weight_bytes() const;
  /// The part of weight_bytes in adopted memory (a mapped file).
  size_t adopted_bytes() const;
  size_t scratch_bytes() const;
  int64_t num_parameters() const;
  /// The part of weight_bytes that a step of one row reads: with the head, without an untied
  /// embedding, and only the experts of the row.
  size_t token_weight_bytes() const;

  /// Scratch bytes that a Decoder with these arguments will take. The config is the whole model's,
  /// even if the sources are a rank's.
  static size_t plan_scratch_bytes(const ModelConfig& config, const ModelSources& sources,
                                   const DecoderOptions& options, DType activation);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
