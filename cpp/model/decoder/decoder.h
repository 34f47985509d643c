#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/contract/backend.h"
#include "model/config/model_config.h"
#include "model/config/quantization.h"
#include "model/sources/model_sources.h"
#include "model/weights/weight_reader.h"

namespace headrace {

struct MtpStep;

struct DecoderOptions {
  DType storage = DType::kF32;  ///< of the weights that aren't quantized
  Quantization quantization;
  int32_t max_rows = 512;       ///< T of the largest step
  int32_t max_logit_rows = 64;  ///< S of the largest forward() or logits() call
  int32_t max_loras = 0;        ///< adapters in one step, 0..256
  int32_t max_lora_rank = 64;   ///< 1..4096
  int32_t max_kept_rows = 0;    ///< of Decoder::keep, 0..2^24
  bool dummy_weights = false;   ///< pseudo-random weights; the checkpoint may be null
  float dummy_spread = 0.02f;   ///< their standard deviation (norms are 1)
  RankPlace rank = {};          ///< of several backends that compute the model together, one
};

class LoraAdapter;

/// A decoder-only transformer: one forward for every family, driven by ModelConfig.
/// Owns its weights and its scratch memory; forward() allocates nothing.
class Decoder {
 public:
  /// Weights come from `reader`, which is not needed any more after this; `sources` are
  /// list_sources() of the config. Throws what the reader throws, and Error(kInvalidArgument) for
  /// options out of range. `backend` must outlive the decoder. Of a rank, sources and config are
  /// share_sources() and share_config(), the backend has joined the others', and every method that
  /// computes is called for all ranks at once, each on a thread of its own, with the same arguments
  /// but for what lives on the backend.
  Decoder(Backend& backend, const ModelConfig& config, const ModelSources& sources,
          WeightReader& reader, const DecoderOptions& options);
  ~Decoder();

  /// Computes a step: writes keys and values of every row, returns logits [S, V] f32 of
  /// batch.logit_rows (may be empty), valid until the next call of forward() or logits(), until
  /// when the adapters must live. SeqSlice::adapter is a number among `adapters`.
  /// Rows that are given have the embeddings that the batch gives, whatever chunk they come in.
  /// REQUIRES: 1 <= T <= max_rows, S <= max_logit_rows, token ids in [0, vocab_size), a cache of
  /// this model's shape, adapters loaded for it, at most max_loras and none of a rank above
  /// max_lora_rank. Of ranks, the first alone has the logits: the others' are [S, 0].
  TensorView forward(const StepBatch& batch, std::span<const LoraAdapter* const> adapters,
                     KvCache& cache);
  /// Without adapters.
  TensorView forward(const StepBatch& batch, KvCache& cache) { return forward(batch, {}, cache); }
  /// Logits [rows.size(), V] of other rows of the last step, for a step that wants more of them
  /// than max_logit_rows: prompt log-probabilities are read in several calls. Overwrites the
  /// logits returned before. `rows` ascend and are at most max_logit_rows.
  TensorView logits(std::span<const int32_t> rows);

  /// Rows of the last step after the final norm [rows.size(), H] act, which times the head are
  /// their logits: all of them, or up to max_logit_rows that ascend. Valid until the next call of
  /// any method here. REQUIRES, unless the step had StepBatch::all_hidden: hidden() of all rows is
  /// not called twice.
  TensorView hidden(std::span<const int32_t> rows);

  /// Of a model with an MTP block (ModelConfig::uses_mtp), see mtp_block.h. guess() computes rows
  /// of it and returns logits like forward(), whose limits it has; the cache is the model's.
  /// REQUIRES of input kStep, and of keep(): the last forward() had StepBatch::all_hidden, and no
  /// guess() has come since.
  TensorView guess(const MtpStep& step, KvCache& cache);
  /// Copies those rows of the last step after the final norm to [first, first + rows.size()) of
  /// the max_kept_rows that are kept.
  void keep(std::span<const int32_t> rows, int64_t first);

  const ModelConfig& config() const;
  size_t weight_bytes() const;
  /// Of weight_bytes: those in memory that the backend adopted (a mapped file's).
  size_t adopted_bytes() const;
  size_t scratch_bytes() const;
  int64_t num_parameters() const;
  /// Of weight_bytes: what a step of one row reads. Head included; of an untied embedding nothing,
  /// and of experts those that the row is sent to.
  size_t token_weight_bytes() const;

  /// Scratch that a Decoder with these arguments will take, before it is made. The config is the
  /// whole model's, whichever rank's the sources are.
  static size_t plan_scratch_bytes(const ModelConfig& config, const ModelSources& sources,
                                   const DecoderOptions& options, DType activation);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
