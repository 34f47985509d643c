// Whole decode steps of a 1B shape on a GPU: milliseconds, and bytes that must move per second.

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <vector>

#include "cuda/host/gpu_under_test.h"
#include "model/decoder.h"
#include "model/model_config.h"

namespace headrace {
namespace {

constexpr const char* kConfig = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
  "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
  "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256,
  "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
  "tie_word_embeddings": true, "torch_dtype": "bfloat16", "hidden_act": "silu"})";
constexpr int32_t kBlock = 64;

ModelConfig shape() {
  const auto folder = std::filesystem::temp_directory_path() / "headrace_step_bench";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << kConfig;
  return load_model_config(folder);
}

struct Sequences {
  std::vector<int32_t> ids, positions, lens, rows;
  std::vector<std::vector<int32_t>> tables;
  std::vector<SeqSlice> slices;

  Sequences(int32_t count, int32_t context) {
    const int32_t blocks = (context + kBlock) / kBlock;
    for (int32_t i = 0; i < count; ++i) {
      tables.emplace_back(static_cast<size_t>(blocks));
      std::iota(tables.back().begin(), tables.back().end(), i * blocks);
      ids.push_back(100 + i);
      positions.push_back(context - 1);
      lens.push_back(context);
      rows.push_back(i);
    }
    for (int32_t i = 0; i < count; ++i) {
      slices.push_back({i, 1, context - 1, tables[static_cast<size_t>(i)]});
    }
  }
  StepBatch batch() const { return {ids, positions, lens, slices, rows}; }
};

void measure(Backend& backend, Decoder& decoder, int32_t count, int32_t context) {
  const ModelConfig& config = decoder.config();
  const Sequences sequences(count, context);
  const KvCacheSpec spec{.num_layers = config.num_layers,
                         .num_kv_heads = config.num_kv_heads,
                         .head_dim = config.head_dim,
                         .block_size = kBlock,
                         .dtype = DType::kBF16};
  const auto blocks = static_cast<int32_t>(sequences.tables[0].size()) * count;
  const auto cache = backend.make_kv_cache(spec, blocks);
  std::vector<SampleRow> rows(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    rows[static_cast<size_t>(i)].logits_row = i;
    rows[static_cast<size_t>(i)].greedy = true;
  }
  std::vector<SampleResult> results(rows.size());
  const auto step = [&] {
    const TensorView logits = decoder.forward(sequences.batch(), *cache);
    backend.sample(logits, config.vocab_size, rows, results);
  };
  constexpr int kWarm = 5, kSteps = 50;
  for (int i = 0; i < kWarm; ++i) step();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kSteps; ++i) step();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kSteps;
  const double kv = static_cast<double>(backend.kv_block_bytes(spec)) / kBlock * context * count;
  const double bytes = static_cast<double>(decoder.bytes_per_step()) + kv;
  std::printf("1B bf16, batch %3d, context %5d: %8.3f ms a step, %7.0f tokens/s, %6.0f GB/s\n",
              count, context, 1e3 * seconds, count / seconds, 1e-9 * bytes / seconds);
}

}  // namespace
}  // namespace headrace

int main() {
  using namespace headrace;
  const auto backend = make_gpu_under_test(DType::kBF16);
  std::printf("%s\n", backend->device_info().description.c_str());
  Decoder decoder(*backend, shape(), nullptr,
                  {.storage = DType::kBF16, .max_logit_rows = 128, .dummy_weights = true});
  for (const auto& [count, context] :
       {std::array{1, 1024}, std::array{8, 1024}, std::array{64, 1024}, std::array{64, 8192}}) {
    measure(*backend, decoder, count, context);
  }
}
