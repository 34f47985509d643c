#pragma once

// Drives a Decoder without an engine: a KV cache, block tables and steps made by hand.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/contract/backend.h"
#include "model/decoder/decoder.h"
#include "model/decoder/mtp_block.h"
#include "model/load/load_lora_adapter.h"

namespace headrace {

/// Tokens that one sequence adds in a step.
struct Chunk {
  int32_t sequence = 0;
  std::vector<int32_t> tokens;
  const LoraAdapter* lora = nullptr;
  /// [tokens][H] embeddings in place of the table's; [layers][tokens][H] added behind layers.
  std::vector<float> given{};
  std::vector<std::vector<float>> added{};
  std::vector<int32_t> rope_positions{};  ///< [3][tokens], or empty: of all chunks or none
  std::vector<Modality> modalities{};     ///< likewise
  int32_t second_text_at = 0;             ///< tokens from there on have type 1; 0: none
  bool both_ways = false;                 ///< a picture's rows, which see each other
};

struct HarnessOptions {
  DType storage = DType::kF32;
  DType kv_dtype = DType::kF32;
  int32_t block_size = 16;
  Quantization quantization{};
  int32_t num_threads = 0;
  std::string numa_nodes{};  ///< not empty: a rank for each
  int32_t max_logit_rows = 512;
  int32_t num_sequences = 4;
  int32_t max_tokens = 256;  ///< per sequence
  int32_t max_loras = 0;
  int32_t max_lora_rank = 64;
  bool mtp = false;  ///< with the block that guesses tokens, and kHarnessKept rows kept
};

inline constexpr int32_t kHarnessKept = 64;

/// Rows of an MTP block of one sequence.
struct GuessRows {
  int32_t sequence = 0, first_position = 0;
  std::vector<int32_t> next_tokens;
  MtpInput input = MtpInput::kStep;
  std::vector<int32_t> rows;        ///< of the input
  std::vector<int32_t> logit_rows;  ///< of these rows
};

/// Every ISA of this machine; under AddressSanitizer, where all take minutes, the plainest and the
/// best: each kernel has its own test there.
std::vector<std::string> isas_under_test();

/// A backend of one ISA, a decoder of one checkpoint folder and sequences in its cache, whose
/// blocks lie scattered.
class DecoderHarness {
 public:
  DecoderHarness(const std::string& isa, const std::string& folder, const HarnessOptions& options);
  /// On that backend; options.num_threads says nothing.
  DecoderHarness(std::shared_ptr<Backend> backend, const std::string& folder,
                 const HarnessOptions& options);

  std::shared_ptr<const LoraAdapter> load_lora(const std::filesystem::path& folder);

  /// Forgets what a sequence has seen. `prompt_length` is what dynamic rope goes by.
  void start(int32_t sequence, int32_t prompt_length);

  /// One step; returns the logits of all its rows, [rows][V].
  std::vector<std::vector<float>> step(const std::vector<Chunk>& chunks);
  /// The same of one sequence, with the logits of the given rows alone.
  std::vector<std::vector<float>> step(const Chunk& chunk, const std::vector<int32_t>& logit_rows);
  /// The logits of other rows of the last step.
  std::vector<std::vector<float>> more(const std::vector<int32_t>& logit_rows);

  /// The step of one sequence, and its rows after the final norm.
  std::vector<std::vector<float>> hidden(const Chunk& chunk, const std::vector<int32_t>& rows);
  /// The same of all sequences, with all rows.
  std::vector<std::vector<float>> hidden(const std::vector<Chunk>& chunks);
  /// Other such rows of the last step.
  std::vector<std::vector<float>> more_hidden(const std::vector<int32_t>& rows);

  /// Decoder::read_pool_head of rows, [rows][outputs].
  std::vector<std::vector<float>> pool_head(const std::vector<std::vector<float>>& rows);

  /// A step of the MTP block, behind a step of the model.
  std::vector<std::vector<float>> guess(const GuessRows& rows);
  void keep(const std::vector<int32_t>& rows, int64_t first) { decoder_->keep(rows, first); }

  const ModelConfig& config() const { return decoder_->config(); }
  Decoder& decoder() { return *decoder_; }
  Backend& backend() { return *backend_; }

 private:
  struct Sequence {
    int32_t length = 0, prompt_length = 0;
    std::vector<std::vector<int32_t>> blocks;  ///< by group of the cache
  };

  struct Given {
    std::vector<GivenRows> rows;
    std::vector<std::vector<TensorView>> added;
    std::vector<Backend::Buffer> memory;
  };

  Given upload_given(const std::vector<Chunk>& chunks);
  TensorView upload_rows(const std::vector<float>& rows, Given& given);
  std::vector<std::vector<float>> run(const std::vector<Chunk>& chunks,
                                      const std::vector<int32_t>& logit_rows);
  std::vector<std::vector<float>> read(const TensorView& logits);

  std::shared_ptr<Backend> backend_;
  DType storage_;
  int32_t max_lora_rank_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<KvCache> cache_;
  std::vector<Sequence> sequences_;
};

/// Lowest id of the largest logit.
int32_t argmax(std::span<const float> logits);

}  // namespace headrace
