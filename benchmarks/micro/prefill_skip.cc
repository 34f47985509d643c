// What it saves that rows of a prompt stop where nothing keeps them: prefills of a model of Gemma 4
// E2B's shape and random weights, whose last 20 of 35 layers read the keys and values of others, by
// turns with logits of the last row alone, and with all rows through all layers.
//
//   micro_prefill_skip [ROWS] [FORMAT] [TIMES]      FORMAT: bf16 or int4

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/checked_math.h"
#include "model/decoder/decoder.h"
#include "model/load/load_config.h"
#include "model/load/make_decoder.h"

namespace headrace::bench {
namespace {

constexpr int32_t kBlock = 64;

/// E2B's, but for the vocabulary: its tables are no part of what is measured.
ModelConfig config_of_e2b() {
  std::string types;
  for (int i = 0; i < 35; ++i) {
    types += std::string(i > 0 ? "," : "") +
             (i % 5 == 4 ? R"("full_attention")" : R"("sliding_attention")");
  }
  return parse_model_config(
      R"({"model_type": "gemma4_text", "vocab_size": 32768, "vocab_size_per_layer_input": 32768,
          "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 35,
          "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256,
          "global_head_dim": 512, "sliding_window": 512, "num_kv_shared_layers": 20,
          "use_double_wide_mlp": true, "hidden_size_per_layer_input": 256,
          "final_logit_softcapping": 30.0, "dtype": "bfloat16", "layer_types": [)" +
          types + "]}",
      "");
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void measure(int32_t rows, const std::string& format, int times) {
  const auto backend = make_cpu_backend({});
  const ModelConfig config = config_of_e2b();
  const auto decoder =
      make_decoder(*backend, config, nullptr,
                   {.storage = DType::kBF16,
                    .quantization = format == "int4" ? Quantization{4, 32} : Quantization{},
                    .max_rows = rows,
                    .dummy_weights = true});
  const CacheLayout layout =
      decoder->cache_layout({.block_size = kBlock, .dtype = DType::kBF16, .windows_below = rows});
  const int32_t each = ceil_div(rows, kBlock);
  const auto cache = backend->make_kv_cache(layout, each * layout.num_groups());
  std::vector<std::vector<int32_t>> tables;
  for (int32_t group = 0; group < layout.num_groups(); ++group) {
    tables.emplace_back(static_cast<size_t>(each));
    std::iota(tables.back().begin(), tables.back().end(), group * each);
  }
  std::vector<int32_t> ids(static_cast<size_t>(rows)), positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>((i * 7919 + 17) % static_cast<size_t>(config.vocab_size));
  }
  const std::vector<int32_t> last = {rows - 1};
  const std::vector<SeqSlice> seqs = {{0, rows, 0, tables}};
  const auto prefill = [&](bool all) {
    StepBatch batch{ids, positions, positions, seqs, last};
    batch.all_hidden = all;
    const double start = now();
    decoder->forward(batch, *cache);
    return now() - start;
  };
  prefill(true);
  std::vector<double> ratios, skipping;
  for (int i = 0; i < times; ++i) {
    const double all = prefill(true);
    skipping.push_back(prefill(false));
    ratios.push_back(all / skipping.back());
  }
  std::sort(ratios.begin(), ratios.end());
  std::sort(skipping.begin(), skipping.end());
  std::printf("%s, %d rows: %.0f tokens/s, %.2f times as fast as all rows through all layers\n",
              format.c_str(), rows, rows / skipping[skipping.size() / 2],
              ratios[ratios.size() / 2]);
}

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  try {
    headrace::bench::measure(argc > 1 ? std::atoi(argv[1]) : 512, argc > 2 ? argv[2] : "bf16",
                             argc > 3 ? std::atoi(argv[3]) : 5);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
