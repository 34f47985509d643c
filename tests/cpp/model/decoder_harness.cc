#include "cpp/model/decoder_harness.h"

#include <algorithm>
#include <numeric>

#include "backend/cpu/cpu_backend.h"
#include "base/checked_math.h"
#include "headrace/options.h"
#include "model/checkpoint/checkpoint.h"
#include "model/config/model_config.h"
#include "model/load/load_config.h"
#include "model/load/load_lora_adapter.h"
#include "model/load/make_decoder.h"

namespace headrace {

std::vector<std::string> isas_under_test() {
  std::vector<std::string> all = available_cpu_isas();
#if defined(HEADRACE_ASAN)
  std::erase_if(all, [best = all.front()](const std::string& isa) {
    return isa != best && isa != "baseline";
  });
#endif
  return all;
}

namespace {

/// Of an adapter, among those of the step.
int32_t number_of(const LoraAdapter* adapter, std::vector<const LoraAdapter*>& adapters) {
  if (adapter == nullptr) return kNoAdapter;
  const auto found = std::ranges::find(adapters, adapter);
  const auto number = static_cast<int32_t>(found - adapters.begin());
  if (found == adapters.end()) adapters.push_back(adapter);
  return number;
}

}  // namespace

DecoderHarness::DecoderHarness(const std::string& isa, const std::string& folder,
                               const HarnessOptions& options)
    : DecoderHarness(make_cpu_backend({.num_threads = options.num_threads,
                                       .numa = !options.numa_nodes.empty(),
                                       .numa_nodes = options.numa_nodes,
                                       .isa = isa}),
                     folder, options) {}

DecoderHarness::DecoderHarness(std::shared_ptr<Backend> backend, const std::string& folder,
                               const HarnessOptions& options)
    : backend_(std::move(backend)),
      storage_(options.storage),
      max_lora_rank_(options.max_lora_rank) {
  ModelConfig config = load_model_config(folder);
  config.uses_mtp = options.mtp;
  {
    const Checkpoint checkpoint(folder);
    decoder_ = make_decoder(*backend_, config, &checkpoint,
                            {.storage = options.storage,
                             .quantization = options.quantization,
                             .max_logit_rows = options.max_logit_rows,
                             .max_loras = options.max_loras,
                             .max_lora_rank = options.max_lora_rank,
                             .max_kept_rows = kHarnessKept});
  }
  const int32_t per_sequence = ceil_div(options.max_tokens, options.block_size);
  const CacheLayout layout =
      decoder_->cache_layout({.block_size = options.block_size, .dtype = options.kv_dtype});
  const int32_t per_group = per_sequence * options.num_sequences;
  cache_ = backend_->make_kv_cache(layout, per_group * layout.num_groups(),
                                   layout.has_states() ? options.num_sequences : 0);
  // Neighbouring blocks of a sequence lie num_sequences apart, last ones first.
  sequences_.resize(static_cast<size_t>(options.num_sequences));
  for (int32_t i = 0; i < options.num_sequences; ++i) {
    for (int32_t group = 0; group < layout.num_groups(); ++group) {
      std::vector<int32_t>& blocks = sequences_[static_cast<size_t>(i)].blocks.emplace_back();
      for (int32_t block = per_sequence - 1; block >= 0; --block) {
        blocks.push_back(group * per_group + block * options.num_sequences + i);
      }
    }
  }
}

std::shared_ptr<const LoraAdapter> DecoderHarness::load_lora(const std::filesystem::path& folder) {
  return load_lora_adapter(backend_, config(), storage_, max_lora_rank_, folder);
}

void DecoderHarness::start(int32_t sequence, int32_t prompt_length) {
  sequences_[static_cast<size_t>(sequence)].length = 0;
  sequences_[static_cast<size_t>(sequence)].prompt_length = prompt_length;
}

std::vector<std::vector<float>> DecoderHarness::step(const std::vector<Chunk>& chunks) {
  size_t rows = 0;
  for (const Chunk& chunk : chunks) rows += chunk.tokens.size();
  std::vector<int32_t> all(rows);
  std::iota(all.begin(), all.end(), 0);
  return run(chunks, all);
}

std::vector<std::vector<float>> DecoderHarness::step(const Chunk& chunk,
                                                     const std::vector<int32_t>& logit_rows) {
  return run({chunk}, logit_rows);
}

std::vector<std::vector<float>> DecoderHarness::more(const std::vector<int32_t>& logit_rows) {
  return read(decoder_->logits(logit_rows));
}

std::vector<std::vector<float>> DecoderHarness::hidden(const Chunk& chunk,
                                                       const std::vector<int32_t>& rows) {
  run({chunk}, {});
  return more_hidden(rows);
}

std::vector<std::vector<float>> DecoderHarness::hidden(const std::vector<Chunk>& chunks) {
  run(chunks, {});
  size_t rows = 0;
  for (const Chunk& chunk : chunks) rows += chunk.tokens.size();
  std::vector<int32_t> all(rows);
  std::iota(all.begin(), all.end(), 0);
  return more_hidden(all);
}

std::vector<std::vector<float>> DecoderHarness::pool_head(
    const std::vector<std::vector<float>>& rows) {
  std::vector<float> joined;
  for (const auto& row : rows) joined.insert(joined.end(), row.begin(), row.end());
  return read(decoder_->read_pool_head(joined));
}

std::vector<std::vector<float>> DecoderHarness::more_hidden(const std::vector<int32_t>& rows) {
  return read(decoder_->hidden(rows));
}

std::vector<std::vector<float>> DecoderHarness::guess(const GuessRows& rows) {
  const Sequence& sequence = sequences_[static_cast<size_t>(rows.sequence)];
  const auto count = static_cast<int32_t>(rows.next_tokens.size());
  std::vector<int32_t> positions, rope_lens;
  for (int32_t i = 0; i < count; ++i) {
    positions.push_back(rows.first_position + i);
    rope_lens.push_back(std::max(positions.back() + 1, sequence.prompt_length));
  }
  const std::vector<SeqSlice> slices = {{0, count, rows.first_position, sequence.blocks}};
  return read(decoder_->guess({.batch = {.token_ids = rows.next_tokens,
                                         .positions = positions,
                                         .rope_lens = rope_lens,
                                         .seqs = slices,
                                         .logit_rows = rows.logit_rows},
                               .input = rows.input,
                               .rows = rows.rows},
                              *cache_));
}

std::vector<std::vector<float>> DecoderHarness::run(const std::vector<Chunk>& chunks,
                                                    const std::vector<int32_t>& logit_rows) {
  std::vector<int32_t> ids, positions, rope_lens;
  std::vector<SeqSlice> slices;
  std::vector<const LoraAdapter*> adapters;
  std::vector<Modality> modalities;
  std::vector<int32_t> token_types;
  std::vector<PositionRange> pictures(chunks.size());
  for (const Chunk& chunk : chunks) {
    modalities.insert(modalities.end(), chunk.modalities.begin(), chunk.modalities.end());
    Sequence& sequence = sequences_[static_cast<size_t>(chunk.sequence)];
    const auto count = static_cast<int32_t>(chunk.tokens.size());
    slices.push_back({static_cast<int32_t>(ids.size()), count, sequence.length, sequence.blocks,
                      number_of(chunk.lora, adapters)});
    if (chunk.both_ways) {
      PositionRange& picture = pictures[slices.size() - 1];
      picture = {sequence.length, sequence.length + count};
      slices.back().both_ways = {&picture, 1};
    }
    if (cache_->num_state_slots() > 0) {
      slices.back().state_in = sequence.length == 0 ? kZeroState : chunk.sequence;
      slices.back().state_out = chunk.sequence;
    }
    for (int32_t i = 0; i < count; ++i) {
      const bool second = chunk.second_text_at > 0 && i >= chunk.second_text_at;
      token_types.push_back(second ? 1 : 0);
    }
    for (const int32_t token : chunk.tokens) {
      ids.push_back(token);
      positions.push_back(sequence.length++);
      rope_lens.push_back(std::max(sequence.length, sequence.prompt_length));
    }
  }
  std::vector<int32_t> rope_positions;
  for (size_t axis = 0; axis < 3; ++axis) {
    for (const Chunk& chunk : chunks) {
      const auto begin = chunk.rope_positions.begin();
      const auto count = static_cast<std::ptrdiff_t>(chunk.rope_positions.size() / 3);
      const auto first = static_cast<std::ptrdiff_t>(axis) * count;
      rope_positions.insert(rope_positions.end(), begin + first, begin + first + count);
    }
  }
  const Given given = upload_given(chunks);
  return read(decoder_->forward({.token_ids = ids,
                                 .positions = positions,
                                 .rope_lens = rope_lens,
                                 .seqs = slices,
                                 .logit_rows = logit_rows,
                                 .given = given.rows,
                                 .rope_positions = rope_positions,
                                 .modalities = modalities,
                                 .token_types = token_types,
                                 .all_hidden = config().uses_mtp},
                                adapters, *cache_));
}

DecoderHarness::Given DecoderHarness::upload_given(const std::vector<Chunk>& chunks) {
  Given out;
  out.added.resize(chunks.size());
  int32_t first_row = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    for (const auto& rows : chunks[i].added) out.added[i].push_back(upload_rows(rows, out));
    if (!chunks[i].given.empty()) {
      out.rows.push_back({first_row, upload_rows(chunks[i].given, out), out.added[i]});
    }
    first_row += static_cast<int32_t>(chunks[i].tokens.size());
  }
  return out;
}

TensorView DecoderHarness::upload_rows(const std::vector<float>& rows, Given& given) {
  const size_t bytes = rows.size() * sizeof(float);
  const Backend::Buffer& buffer = given.memory.emplace_back(backend_->allocate(bytes));
  backend_->upload(rows.data(), buffer.data, bytes);
  const int64_t hidden = config().hidden_size;
  return TensorView(buffer.data, DType::kF32, {static_cast<int64_t>(rows.size()) / hidden, hidden});
}

std::vector<std::vector<float>> DecoderHarness::read(const TensorView& logits) {
  std::vector<std::vector<float>> out(static_cast<size_t>(logits.rows()));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].resize(static_cast<size_t>(logits.cols()));
    backend_->read_back(logits.row<float>(static_cast<int64_t>(i)), out[i].data(),
                        out[i].size() * sizeof(float));
  }
  return out;
}

int32_t argmax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace headrace
