// Where the time of a whole step goes, and its share of the floor: a model of random weights.
//
//   micro_step [FORMAT] [ROWS] [CONTEXT] [SHAPE] [STEPS] [ISA] [THREADS]
//   micro_step smoke
//
// FORMAT: bf16, int8 or int4. ROWS at CONTEXT 0: one prefill of so many tokens; else so many
// requests that decode a token each at that context. SHAPE: qwen2-0.5b, ernie-4.5-0.3b,
// llama-3.2-1b or smoke; with states qwen3.5-0.8b, qwen3.5-4b, lfm2-1.2b or smoke-states;
// qwen3-like-0.8b and -4b are as large as Qwen3.5's, with attention alone.
//
// Steps alternate with probes of the machine's limits, which drift. The floor of an op is what
// takes longer, reading its weights or multiplying by them.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "model/decoder/decoder.h"
#include "model/load/load_config.h"
#include "model/load/make_decoder.h"
#include "peaks.h"
#include "timed_backend.h"

namespace headrace::bench {
namespace {

struct ModelShape {
  const char* name;
  const char* model_type;
  int vocab, hidden, intermediate, layers, heads, kv_heads, head_dim;
  std::string more{};  ///< of config.json
};

std::string qwen3_5(int key_heads, int value_heads, int head_dim) {
  const std::string keys = std::to_string(key_heads), values = std::to_string(value_heads);
  const std::string dim = std::to_string(head_dim);
  return R"(, "linear_num_key_heads": )" + keys + R"(, "linear_num_value_heads": )" + values +
         R"(, "linear_key_head_dim": )" + dim + R"(, "linear_value_head_dim": )" + dim +
         R"(, "partial_rotary_factor": 0.25)";
}
constexpr const char* kLfm2 =
    R"(, "conv_L_cache": 3, "block_auto_adjust_ff_dim": false,
       "full_attn_idxs": [2, 5, 8, 10, 12, 14])";

const ModelShape kShapes[] = {
    {"qwen2-0.5b", "qwen2", 151936, 896, 4864, 24, 14, 2, 64},
    {"ernie-4.5-0.3b", "ernie4_5", 103424, 1024, 3072, 18, 16, 2, 128},
    {"llama-3.2-1b", "llama", 128256, 2048, 8192, 16, 32, 8, 64},
    {"smoke", "qwen2", 4096, 128, 384, 2, 4, 2, 32},
    {"qwen3.5-0.8b", "qwen3_5_text", 248320, 1024, 3584, 24, 8, 2, 256, qwen3_5(16, 16, 128)},
    {"qwen3.5-4b", "qwen3_5_text", 248320, 2560, 9216, 32, 16, 4, 256, qwen3_5(16, 32, 128)},
    {"lfm2-1.2b", "lfm2", 65536, 2048, 8192, 16, 32, 8, 64, kLfm2},
    {"smoke-states", "qwen3_5_text", 4096, 128, 384, 4, 4, 2, 32, qwen3_5(2, 4, 32)},
    {"qwen3-like-0.8b", "qwen3", 248320, 1024, 4032, 24, 16, 8, 128},
    {"qwen3-like-4b", "qwen3", 248320, 2560, 9472, 32, 32, 8, 128},
};

ModelConfig config_of(const std::string& name) {
  for (const ModelShape& shape : kShapes) {
    if (name != shape.name) continue;
    const auto entry = [](const char* key, int value) {
      return ", \"" + std::string(key) + "\": " + std::to_string(value);
    };
    return parse_model_config(
        "{\"model_type\": \"" + std::string(shape.model_type) + "\"" +
            entry("vocab_size", shape.vocab) + entry("hidden_size", shape.hidden) +
            entry("intermediate_size", shape.intermediate) +
            entry("num_hidden_layers", shape.layers) + entry("num_attention_heads", shape.heads) +
            entry("num_key_value_heads", shape.kv_heads) + entry("head_dim", shape.head_dim) +
            entry("max_position_embeddings", 131072) +
            R"(, "rope_theta": 1000000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
               "hidden_act": "silu", "torch_dtype": "bfloat16")" +
            shape.more + "}",
        "");
  }
  throw std::invalid_argument("no shape is called " + name);
}

struct Plan {
  std::string format = "bf16";
  int32_t rows = 1;
  int32_t context = 128;
  std::string shape = "qwen2-0.5b";
  int steps = 15;
  std::string isa{};
  int threads = 0;
  size_t probe_bytes = size_t{1} << 30;

  bool prefills() const { return context == 0; }
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Quantization quantization_of(const std::string& format) {
  if (format == "int8") return {8, 64};
  if (format == "int4") return {4, 32};
  return {};
}

/// A step's rows: one sequence's prompt, or a token of each of many.
struct Batch {
  std::vector<int32_t> ids, positions, rope_lens, logit_rows;
  std::vector<std::vector<int32_t>> blocks;
  std::vector<SeqSlice> seqs;
  std::vector<SampleRow> sample_rows;
  int32_t num_blocks = 0;

  explicit Batch(const Plan& plan, int32_t vocab_size) {
    const int32_t sequences = plan.prefills() ? 1 : plan.rows;
    const int32_t rows_each = plan.rows / sequences;
    for (int32_t s = 0; s < sequences; ++s) {
      blocks.emplace_back(static_cast<size_t>((plan.context + rows_each) / 64 + 1));
      std::iota(blocks.back().begin(), blocks.back().end(), num_blocks);
      num_blocks += static_cast<int32_t>(blocks.back().size());
      const int32_t start = plan.context;
      seqs.push_back({s * rows_each, rows_each, start, blocks.back()});
      seqs.back().state_in = start == 0 ? kZeroState : s;
      seqs.back().state_out = s;
      for (int32_t i = 0; i < rows_each; ++i) {
        ids.push_back(static_cast<int32_t>(ids.size() * 7919 + 17) % vocab_size);
        positions.push_back(start + i);
        rope_lens.push_back(start + rows_each);
      }
      logit_rows.push_back((s + 1) * rows_each - 1);
      sample_rows.push_back({.logits_row = s, .greedy = true});
    }
  }

  StepBatch view() const { return {ids, positions, rope_lens, seqs, logit_rows}; }
};

class Bench {
 public:
  explicit Bench(const Plan& plan)
      : plan_(plan),
        backend_(make_cpu_backend({.num_threads = plan.threads, .isa = plan.isa})),
        timed_(*backend_),
        config_(config_of(plan.shape)),
        batch_(plan, config_.vocab_size),
        threads_(backend_->device_info().num_threads),
        probe_(threads_, plan.probe_bytes) {
    DecoderOptions options;
    options.storage = DType::kBF16;
    options.quantization = quantization_of(plan.format);
    options.max_rows = plan.rows;
    options.max_logit_rows = static_cast<int32_t>(batch_.logit_rows.size());
    options.dummy_weights = true;
    decoder_ = make_decoder(timed_, config_, nullptr, options);
    const CacheLayout layout = decoder_->cache_layout({.dtype = DType::kBF16});
    const auto slots = static_cast<int32_t>(batch_.seqs.size());
    cache_ = backend_->make_kv_cache(layout, batch_.num_blocks, layout.has_states() ? slots : 0);
    if (!layout.has_states()) {
      for (SeqSlice& seq : batch_.seqs) seq.state_in = seq.state_out = kZeroState;
    }
    results_.resize(batch_.sample_rows.size());
    fill_cache();
  }

  void run() {
    step();
    timed_.reset();
    step();
    const std::map<std::string, OpTotals> once = timed_.totals();
    std::map<std::string, std::vector<double>> seconds;
    std::vector<double> shares, rates, peaks, wholes;
    for (int i = 0; i < plan_.steps; ++i) {
      peaks.push_back(peak());
      const double before = probe_.bytes_per_second(1);
      timed_.reset();
      wholes.push_back(step());
      for (const auto& [name, totals] : timed_.totals()) seconds[name].push_back(totals.seconds);
      const double limit = 0.5 * (before + probe_.bytes_per_second(1));
      shares.push_back(floor(once, limit, peaks.back()) / wholes.back());
      rates.push_back(limit);
    }
    report(once, seconds, median(rates), median(peaks));
    std::printf(
        "%s %d rows at %d: step %.3f ms, %.0f %% of floor; "
        "%.1f GB/s, %.0f GOP/s\n",
        plan_.format.c_str(), plan_.rows, plan_.context, median(wholes) * 1e3, 100 * median(shares),
        median(rates) * 1e-9, median(peaks) * 1e-9);
  }

 private:
  double peak() const {
    const std::string isa = backend_->device_info().isa;
    if (isa != "avx512_bf16") return f32_peak(threads_);
    return plan_.format == "bf16" ? bf16_peak(threads_) : int8_peak(threads_);
  }

  /// Writes keys and values of the sequences' contexts: memory that was never written is read from
  /// one page of zeros.
  void fill_cache() {
    constexpr int32_t kRows = 64;
    const QkvSpec heads{config_.num_heads, config_.num_kv_heads, config_.head_dim, {}, {}, 1e-6f};
    const int64_t width = int64_t{config_.num_heads + 2 * config_.num_kv_heads} * config_.head_dim;
    std::vector<float> qkv(static_cast<size_t>(kRows * width));
    uint32_t state = 1;
    for (float& x : qkv) {
      state = state * 1664525u + 1013904223u;
      x = static_cast<float>(state >> 8) * 0x1p-24f - 0.5f;
    }
    for (const SeqSlice& seq : batch_.seqs) {
      for (int32_t start = 0; start < seq.start_pos; start += kRows) {
        const int32_t rows = std::min(kRows, seq.start_pos - start);
        std::vector<int32_t> positions(static_cast<size_t>(rows));
        std::iota(positions.begin(), positions.end(), start);
        SeqSlice part{0, rows, start, seq.blocks};
        part.state_out = seq.state_out;
        StepBatch batch{positions, positions, positions, {&part, 1}, {}};
        batch.cache = cache_.get();
        backend_->begin_step(batch);
        const TensorView input(qkv.data(), DType::kF32, {rows, width});
        for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
          if (cache_->layout().place(layer).group < 0) continue;
          backend_->rope_kv_write(input, heads, {.rotary_dim = 0}, {}, *cache_, layer);
        }
      }
    }
  }

  double step() {
    const double start = now();
    const TensorView logits = decoder_->forward(batch_.view(), *cache_);
    timed_.sample(logits, config_.vocab_size, batch_.sample_rows, results_);
    return now() - start;
  }

  static double floor(const OpTotals& op, double limit, double peak) {
    return std::max(op.bytes / limit, op.operations / peak);
  }
  /// Of the whole step: weights and, of decodes, keys and values.
  double floor(const std::map<std::string, OpTotals>& ops, double limit, double peak) const {
    double sum = 0;
    for (const auto& [name, op] : ops) sum += floor(op, limit, peak);
    return sum + kv_floor(limit, peak);
  }
  double kv_floor(double limit, double peak) const {
    const auto& places = cache_->layout().layers;
    const auto keeps_rows = [](const CachePlace& place) { return place.group >= 0; };
    const double width =
        static_cast<double>(std::ranges::count_if(places, keeps_rows) * config_.head_dim);
    if (!plan_.prefills()) {
      return plan_.rows * plan_.context * 4.0 * config_.num_kv_heads * width / limit;
    }
    return 2.0 * plan_.rows * plan_.rows * config_.num_heads * width / peak;
  }

  void report(const std::map<std::string, OpTotals>& ops,
              const std::map<std::string, std::vector<double>>& seconds, double limit,
              double peak) const {
    for (const auto& [name, op] : ops) {
      const double time = median(seconds.at(name));
      const double least = name == "attention" ? kv_floor(limit, peak) : floor(op, limit, peak);
      std::printf("%-24s %3d x %8.1f us = %8.3f ms", name.c_str(), op.calls, time / op.calls * 1e6,
                  time * 1e3);
      if (least > 0) {
        std::printf(", %3.0f %% of floor, %8.3f ms above", 100 * least / time,
                    (time - least) * 1e3);
      }
      std::printf("\n");
    }
  }

  Plan plan_;
  std::unique_ptr<Backend> backend_;
  TimedBackend timed_;
  ModelConfig config_;
  Batch batch_;
  int threads_;
  ReadProbe probe_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<KvCache> cache_;
  std::vector<SampleResult> results_;
};

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  using namespace headrace::bench;
  const auto number = [&](int i, int fallback) { return argc > i ? std::atoi(argv[i]) : fallback; };
  Plan plan;
  if (argc > 1) plan.format = argv[1];
  plan.rows = std::max(1, number(2, plan.rows));
  plan.context = std::max(0, number(3, plan.context));
  if (argc > 4) plan.shape = argv[4];
  plan.steps = std::max(1, number(5, plan.steps));
  if (argc > 6) plan.isa = argv[6];
  plan.threads = number(7, plan.threads);
  if (plan.format == "smoke") {
    plan = {.format = "int8",
            .rows = 2,
            .context = 20,
            .shape = "smoke",
            .steps = 1,
            .threads = 2,
            .probe_bytes = size_t{4} << 20};
  }
  try {
    Bench(plan).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "micro_step: %s\n", error.what());
    return 1;
  }
  return 0;
}
