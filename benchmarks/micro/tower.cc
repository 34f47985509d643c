// Vision towers of published shapes, with random weights in bfloat16 and with int8 linears (wint8).
//
//   micro_tower [SHAPE] [HEIGHT] [WIDTH] [THREADS]      HEIGHT and WIDTH in patches
//   micro_tower smoke
//
// Operations a second of a whole image (every matrix, and 2 products of each pair of rows that see
// each other), as a share of the peak of bf16 dot products and of linear() alone at the tower's
// widest matrix, both measured in the same run, before and after each image; and the longest
// piece, which is what another request's step may have to wait for.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "model/config/model_config.h"
#include "model/load/list_sources.h"
#include "model/load/load_config.h"
#include "model/sources/model_sources.h"
#include "model/vision/make_tower.h"
#include "model/vision/patch_order.h"
#include "model/weights/weight_loader.h"
#include "peaks.h"

namespace headrace::bench {
namespace {

struct TowerShape {
  const char* name;
  const char* config;
};

/// Decoders of one small layer: only their hidden size matters.
constexpr TowerShape kShapes[] = {
    {"Qwen2.5-VL-3B", R"({"model_type":"qwen2_5_vl","hidden_size":2048,"num_attention_heads":16,
      "num_key_value_heads":2,"num_hidden_layers":1,"intermediate_size":64,"vocab_size":64,
      "vision_config":{"depth":32,"hidden_size":1280,"intermediate_size":3420,"num_heads":16,
        "out_hidden_size":2048}})"},
    {"Qwen3-VL-2B", R"({"model_type":"qwen3_vl","text_config":{"hidden_size":2048,
      "num_attention_heads":16,"num_key_value_heads":8,"num_hidden_layers":4,
      "intermediate_size":64,"vocab_size":64},
      "vision_config":{"depth":24,"hidden_size":1024,"intermediate_size":4096,"num_heads":16,
        "out_hidden_size":2048,"deepstack_visual_indexes":[5,11,17]}})"},
    {"ERNIE-4.5-VL-28B", R"({"model_type":"ernie4_5_moe_vl","num_hidden_layers":1,
      "moe_num_experts":[8,8],"moe_intermediate_size":[64,64],"intermediate_size":64,
      "vision_config":{}})"},
    {"SmolVLM2-500M", R"({"model_type":"smolvlm","scale_factor":4,"text_config":{
      "hidden_size":960,"num_attention_heads":15,"num_key_value_heads":5,"num_hidden_layers":1,
      "intermediate_size":64,"vocab_size":64},
      "vision_config":{"hidden_size":768,"num_attention_heads":12,"image_size":512,
        "patch_size":16}})"},
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double pairs_of(const std::vector<int32_t>& ends) {
  double pairs = 0;
  int32_t first = 0;
  for (const int32_t end : ends) {
    pairs += static_cast<double>(end - first) * (end - first);
    first = end;
  }
  return pairs;
}

/// Operations of one item.
double work_of(const VisionConfig& config, const VisionSources& sources, const PatchGrid& grid) {
  const double rows = static_cast<double>(grid.t) * grid.h * grid.w;
  const double unit = static_cast<double>(config.merge_size) * config.merge_size;
  double numbers = 0;
  for (const MatrixSource* source : sources.matrices()) {
    numbers += static_cast<double>(source->numbers());
  }
  double merged = 0;
  for (const MergerSources& merger : sources.mergers) {
    merged += static_cast<double>(merger.up.matrix.numbers() + merger.down.matrix.numbers());
  }
  if (const auto& joins = sources.resampler) {  // of an image, whose squares count as two grids
    for (const LinearSource* linear : {&joins->square.up, &joins->square.down, &joins->grids.up,
                                       &joins->grids.down, &joins->out}) {
      merged += static_cast<double>(linear->matrix.numbers());
    }
  }
  const PatchOrder order = order_patches(config, grid);
  const double full =
      config.window == 0 ? config.depth : static_cast<double>(config.full_blocks.size());
  const double pairs =
      full * pairs_of(order.grid_ends) + (config.depth - full) * pairs_of(order.window_ends);
  return 2 * rows * (numbers - merged) + 2 * rows / unit * merged + 4 * pairs * config.width;
}

class Bench {
 public:
  /// `quantization`: "" or "wint8".
  Bench(const TowerShape& shape, int threads, const std::string& quantization)
      : name_(shape.name + (quantization.empty() ? "" : " " + quantization)),
        threads_(threads),
        backend_(make_cpu_backend({.num_threads = threads})),
        config_(parse_model_config(shape.config, "")),
        sources_(
            list_sources(config_, likely_naming(config_), parse_quantization(quantization, 0))) {
    WeightLoader loader(*backend_, nullptr, DType::kBF16, 0.02f);
    tower_ = make_vision_tower(*backend_, config_, *sources_.vision, loader, DType::kBF16);
    probe_ = loader.matrix(sources_.vision->blocks.front().up.matrix);
  }

  void run(const PatchGrid& grid, int passes) {
    const double work = work_of(*config_.vision, *sources_.vision, grid);
    std::vector<double> times, peaks, linears, longest;
    for (int pass = 0; pass < passes; ++pass) {
      const double before = bf16_peak(threads_), linear_before = linear_rate();
      const auto [seconds, piece] = encode(grid);
      times.push_back(seconds);
      longest.push_back(piece);
      peaks.push_back(work / seconds / std::max(1.0, (before + bf16_peak(threads_)) / 2));
      linears.push_back(work / seconds / ((linear_before + linear_rate()) / 2));
    }
    const double seconds = median(times);
    std::printf(
        "%-22s %3d x %3d patches, %5d rows: %6.3f s, %5.0f GFLOP/s, %3.0f %% of bf16 peak, %3.0f "
        "%% "
        "of linear(); longest piece %.1f ms; scratch %.1f MiB, weights %.0f MiB\n",
        name_.c_str(), grid.h, grid.w, static_cast<int>(tower_->rows(grid)), seconds,
        work / seconds * 1e-9, 100 * median(peaks), 100 * median(linears), median(longest) * 1e3,
        static_cast<double>(tower_->scratch_bytes(grid)) / (1 << 20),
        static_cast<double>(tower_->weight_bytes()) / (1 << 20));
  }

 private:
  /// Seconds of an image, and of its longest piece.
  std::pair<double, double> encode(const PatchGrid& grid) {
    const int64_t count = int64_t{grid.t} * grid.h * grid.w;
    patches_.resize(static_cast<size_t>(count * tower_->patch_values()));
    for (size_t i = 0; i < patches_.size(); ++i) {
      patches_[i] = static_cast<float>(i * 2654435761u % 1000) * 0.002f - 1.0f;
    }
    std::vector<Backend::Buffer> memory;
    std::vector<TensorView> out;
    for (int32_t i = 0; i < tower_->outputs(); ++i) {
      const int64_t rows = tower_->rows(grid);
      memory.push_back(backend_->allocate(static_cast<size_t>(rows * config_.hidden_size) * 4));
      out.emplace_back(memory.back().data, DType::kF32, Shape{rows, config_.hidden_size});
    }
    double longest = 0;
    const double start = now();
    double last = start;
    const auto run = tower_->begin(patches_.data(), grid, out);
    for (bool done = false; !done;) {
      done = run->advance();
      const double at = now();
      longest = std::max(longest, at - last);
      last = at;
    }
    return {last - start, longest};
  }

  /// Operations a second of the first linear of an MLP with as many rows as a tile has.
  double linear_rate() {
    constexpr int64_t kRows = 512;
    const auto bytes = [](int64_t columns) { return static_cast<size_t>(kRows * columns) * 4; };
    const Backend::Buffer in = backend_->allocate(bytes(probe_->k()));
    const Backend::Buffer out = backend_->allocate(bytes(probe_->n()));
    const TensorView x(in.data, DType::kF32, {kRows, probe_->k()});
    const TensorView y(out.data, DType::kF32, {kRows, probe_->n()});
    std::fill_n(x.as<float>(), kRows * probe_->k(), 0.5f);
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      const double start = now();
      backend_->linear(x, *probe_, {}, y);
      best = std::min(best, now() - start);
    }
    return 2.0 * static_cast<double>(kRows * probe_->n() * probe_->k()) / best;
  }

  std::string name_;
  int threads_;
  std::unique_ptr<Backend> backend_;
  ModelConfig config_;
  ModelSources sources_;
  std::unique_ptr<VisionTower> tower_;
  std::unique_ptr<PackedWeight> probe_;
  std::vector<float> patches_;
};

int main_with(const std::vector<std::string>& args) {
  const bool smoke = !args.empty() && args[0] == "smoke";
  const int default_threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int threads = args.size() > 3 ? std::max(1, std::atoi(args[3].c_str())) : default_threads;
  if (smoke) {
    for (const char* quantization : {"", "wint8"}) {
      Bench(std::end(kShapes)[-1], threads, quantization).run({1, 32, 32}, 1);
    }
    return 0;
  }
  for (const TowerShape& shape : kShapes) {
    if (!args.empty() && args[0] != shape.name) continue;
    for (const char* quantization : {"", "wint8"}) {
      Bench bench(shape, threads, quantization);
      if (args.size() > 2) {
        bench.run({1, std::atoi(args[1].c_str()), std::atoi(args[2].c_str())}, 3);
        continue;
      }
      bench.run({1, 32, 32}, 3);
      if (std::string(shape.name) != "SmolVLM2-500M") bench.run({1, 78, 138}, 1);
    }
  }
  return 0;
}

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) { return headrace::bench::main_with({argv + 1, argv + argc}); }
