#pragma once

// Which stored tensors make up which weight of a model, and which of them a rank has. What a layer
// reads, its family lists (model/load/list_sources.h).

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config/model_config.h"
#include "model/sources/block_sources.h"
#include "model/sources/layer_naming.h"
#include "model/sources/vision_sources.h"

namespace headrace {

/// Whether the decoder's name of a weight is that of one of an MTP block.
inline bool is_mtp_weight(std::string_view name) { return name.starts_with("mtp."); }

/// What a layer reads: a mixer, a feed-forward block or both, and their norms.
struct LayerSources {
  /// [H] of what the blocks read. Without its own, the mixer reads the residual itself; the
  /// feed-forward block does, too, or reads the rows that the mixer has read (parallel).
  NormSource mixer_norm, feed_forward_norm;
  /// [H] of what the blocks give, before it is added; may be empty.
  NormSource mixer_post_norm, feed_forward_post_norm;
  /// Of what the blocks give, behind that norm.
  float mixer_scale = 1.0f, feed_forward_scale = 1.0f;
  /// [H] of the residual with that added, which becomes the residual; may be empty.
  NormSource mixer_sum_norm, feed_forward_sum_norm;
  bool parallel = false;
  std::unique_ptr<MixerSources> mixer;               ///< null: it has none
  std::unique_ptr<FeedForwardSources> feed_forward;  ///< likewise
  /// A block behind it, which reads the residual itself; null: none. Then the norm of what it
  /// gives.
  std::unique_ptr<FeedForwardSources> last;
  NormSource last_post_norm;
  VectorSource scalar;  ///< [1] what the residual is multiplied by at last; may be empty
  std::vector<std::string> ignored;  ///< as ModelSources::ignored

  std::vector<BlockSources*> blocks() const;  ///< those that it has
  std::vector<MatrixSource*> matrices();      ///< not empty ones, likewise below
  std::vector<const MatrixSource*> matrices() const;
  std::vector<const VectorSource*> vectors() const;
};

/// What layers get of each token beside the residual (per_layer_inputs.h). P numbers for each of L
/// layers.
struct PerLayerInputSources {
  MatrixSource table;       ///< [V, L P]
  MatrixSource projection;  ///< [L P, H]
  VectorSource norm;        ///< [P]
};

/// A layer behind pooling (HeadLayer).
struct HeadLayerSources {
  LinearSource linear;  ///< never quantized, and no adapter changes it
  std::optional<Activation> activation;
  NormSource norm;  ///< may be empty
};

/// A block that guesses a token further (mtp_block.h). No adapter changes it.
struct MtpSources {
  VectorSource embedding_norm, hidden_norm;  ///< [H]
  MatrixSource join;  ///< [H, 2 H]: embedding first. Quantized only if it is stored so
  LayerSources layer;
  VectorSource final_norm;  ///< [H] before the head; empty: the model's

  std::vector<const MatrixSource*> matrices() const;
  std::vector<const VectorSource*> vectors() const;
};

/// The whole model's. Its linears that adapters may change are numbered from 0 on.
struct ModelSources {
  MatrixSource embedding;  ///< [V, H]
  /// [rows, H] each, or empty: a token's embedding has the row of its position added, and that of
  /// its token type. Then comes a norm, which may be empty.
  VectorSource positions, token_types;
  NormSource embedding_norm;
  std::vector<LayerSources> layers;
  std::optional<PerLayerInputSources> per_layer;  ///< of ModelConfig::per_layer_input
  NormSource final_norm;
  MatrixSource head;  ///< [V, H]; empty if the embedding serves as head
  int32_t num_sites = 0;
  /// adapter_parts() of the linear that has most, of those that adapters may change, in the names
  /// that adapters have (CheckpointLayout::kTorch's).
  int64_t adapter_parts = 1;
  std::vector<HeadLayerSources> pool_head;  ///< of ModelConfig::pool_head
  std::optional<MtpSources> mtp;            ///< of ModelConfig::uses_mtp
  std::optional<VisionSources> vision;      ///< of ModelConfig::vision
  /// What the names of tensors of the checkpoint that the model has no place for begin with.
  std::vector<std::string> ignored;
  RankPlace rank;  ///< whose part they are (share_sources)

  std::vector<const MatrixSource*> matrices() const;
  std::vector<const VectorSource*> vectors() const;
  /// Without the MTP block, likewise below.
  std::vector<const MatrixSource*> proper_matrices() const;
  int64_t num_parameters() const;
  /// Those that a token is multiplied by or added to: of experts the chosen ones, of an embedding
  /// that isn't the head its row, and of a vision tower none.
  int64_t active_parameters() const;
};

/// Of the vocabulary the tokens whose rows of embedding and head a rank has. Throws
/// Error(kUnsupported) if there are too few.
SourceRange share_vocabulary(int64_t vocab_size, const RankPlace& place);

/// The sources become those of one rank, which reads nothing else of the checkpoint: its part of
/// embedding, head and blocks; of a vision tower and of what comes behind pooling all or, but for
/// rank 0, nothing. Throws
/// Error(kUnsupported) naming what the ranks can't share.
void share_sources(const RankPlace& place, ModelSources& sources);

/// The config of what one rank computes: its heads. Throws likewise.
ModelConfig share_config(const RankPlace& place, const ModelConfig& config);

}  // namespace headrace
