// linear at the shapes of published models, as shares of the limits measured in the same run.
//
//   micro_linear [ISA] [THREADS] [ROWS of the prefill] [FORMAT] [MODEL]
//   micro_linear smoke             a tiny shape, to see that it runs
//
// FORMAT and MODEL: only those whose names hold this.
//
// decode: 1 to 16 rows through all matrices of the model, each read from memory: bytes of packed
// weights a second, against a plain loop that reads as much. Memory speed drifts, so the loop runs
// before and after each pass and the share is the median over passes. The floor of each matrix is
// what takes longer, reading it or multiplying by it at the instruction's peak.
// prefill: many rows through one layer's matrices: operations a second against the instruction's
// peak.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "float4_codes.h"
#include "peaks.h"

namespace headrace::bench {
namespace {

struct MatrixShape {
  const char* name;
  int64_t n, k;
  WeightUse use;
};

struct Format {
  const char* name;
  DType source;
  QuantFormat quant;
};

constexpr Format kFormats[] = {{"bf16", DType::kBF16, {}},
                               {"mxfp4", DType::kBF16, kFloat4Format},
                               {"f32", DType::kF32, {}},
                               {"int8 g64", DType::kBF16, {.bits = 8, .group_size = 64}},
                               {"int8 g128", DType::kBF16, {.bits = 8, .group_size = 128}},
                               {"int4 g32", DType::kBF16, {.bits = 4, .group_size = 32}},
                               {"int4 g64", DType::kBF16, {.bits = 4, .group_size = 64}},
                               {"int4 g128", DType::kBF16, {.bits = 4, .group_size = 128}}};

struct ModelShape {
  const char* name;
  int layers;
  std::vector<MatrixShape> layer;
  MatrixShape head;
};

std::vector<ModelShape> smoke_models() {
  return {{"smoke",
           2,
           {{"qkv", 96, 64, WeightUse::kLinear}, {"gate_up", 256, 64, WeightUse::kGateUp}},
           {"head", 1000, 64, WeightUse::kTiedEmbedding}}};
}

std::vector<ModelShape> published_models() {
  return {{"Qwen2-0.5B",
           24,
           {{"qkv", 1152, 896, WeightUse::kLinear},
            {"o", 896, 896, WeightUse::kLinear},
            {"gate_up", 9728, 896, WeightUse::kGateUp},
            {"down", 896, 4864, WeightUse::kLinear}},
           {"head", 151936, 896, WeightUse::kTiedEmbedding}},
          {"ERNIE-4.5-0.3B",
           18,
           {{"qkv", 2560, 1024, WeightUse::kLinear},
            {"o", 1024, 2048, WeightUse::kLinear},
            {"gate_up", 6144, 1024, WeightUse::kGateUp},
            {"down", 1024, 3072, WeightUse::kLinear}},
           {"head", 103424, 1024, WeightUse::kTiedEmbedding}},
          {"gpt-oss-20b",  // experts
           8,
           {{"gate_up", 5760, 2880, WeightUse::kGateUp}, {"down", 2880, 2880, WeightUse::kLinear}},
           {"none", 0, 2880, WeightUse::kLinear}}};
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::vector<float> noise(size_t count) {
  std::vector<float> out(count);
  uint32_t state = 1;
  for (float& x : out) {
    state = state * 1664525u + 1013904223u;
    x = static_cast<float>(state >> 8) * 0x1p-24f - 0.5f;
  }
  return out;
}

/// A packed matrix with room for its inputs and outputs.
struct Layer {
  MatrixShape shape;
  std::unique_ptr<PackedWeight> weight;
};

class Bench {
 public:
  Bench(const std::string& isa, int threads, int64_t rows, size_t probe_bytes)
      : backend_(make_cpu_backend({.num_threads = threads, .isa = isa})),
        threads_(threads),
        rows_(rows),
        probe_(threads, probe_bytes) {
    source_ = noise(size_t{9728} * 4864);
    halves_.resize(source_.size());
    std::transform(source_.begin(), source_.end(), halves_.begin(), f32_to_bf16);
    input_ = backend_->allocate(static_cast<size_t>(rows) * 4864 * sizeof(float));
    const std::vector<float> x = noise(input_.bytes / sizeof(float));
    backend_->upload(x.data(), input_.data, input_.bytes);
    output_ = backend_->allocate(std::max<size_t>(static_cast<size_t>(rows) * 9728, 151936) *
                                 sizeof(float));
  }

  void run(const std::vector<ModelShape>& models, const std::string& format_name,
           const std::string& model_name) {
    std::printf("%s\n", backend_->device_info().description.c_str());
    const bool bf16_dot = backend_->device_info().isa == "avx512_bf16";
    const bool int8_dot = bf16_dot || backend_->device_info().isa == "avx512_vnni";
    for (const ModelShape& model : models) {
      if (std::string(model.name).find(model_name) == std::string::npos) continue;
      for (const Format& format : kFormats) {
        if (std::string(format.name).find(format_name) == std::string::npos) continue;
        const std::vector<int64_t> rows = format.source == DType::kF32
                                              ? std::vector<int64_t>{1}
                                              : std::vector<int64_t>{1, 4, 8, 16};
        const bool rounded = format.quant.bits != 0 && !format.quant.float4;
        const bool dot = rounded ? int8_dot : bf16_dot && format.source == DType::kBF16;
        const auto measure_peak = !dot ? f32_peak : rounded ? int8_peak : bf16_peak;
        for (const int64_t count : rows) decode(model, format, count, measure_peak);
        prefill(model, format, measure_peak);
      }
    }
  }

 private:
  Layer pack(const MatrixShape& shape, const Format& format) {
    // The head is as many copies of a smaller matrix.
    const int64_t most = static_cast<int64_t>(source_.size()) / shape.k;
    WeightSpec spec{{}, format.source, shape.use, format.quant};
    if (format.quant.float4) {
      spec.parts.push_back(float4_.part(shape.n, shape.k));
      return {shape, backend_->pack_weight(spec)};
    }
    for (int64_t n = shape.n; n > 0; n -= most) {
      const void* data = format.source == DType::kF32 ? static_cast<const void*>(source_.data())
                                                      : static_cast<const void*>(halves_.data());
      spec.parts.push_back({data, format.source, std::min(n, most), shape.k, false, shape.k});
    }
    return {shape, backend_->pack_weight(spec)};
  }

  void apply(const Layer& layer, int64_t rows) {
    const bool gate_up = layer.shape.use == WeightUse::kGateUp;
    const int64_t outputs = gate_up ? layer.shape.n / 2 : layer.shape.n;
    const TensorView x(input_.data, DType::kF32, {rows, layer.shape.k});
    const TensorView out(output_.data, DType::kF32, {rows, outputs});
    if (gate_up) {
      backend_->linear_gate_mul(x, *layer.weight, {}, {}, out);
    } else {
      backend_->linear(x, *layer.weight, {}, out);
    }
  }

  void decode(const ModelShape& model, const Format& format, int64_t rows,
              double (*measure_peak)(int)) {
    std::vector<Layer> layers;
    double bytes = 0;
    const double pack_start = now();
    for (int i = 0; i < model.layers; ++i) {
      for (const MatrixShape& shape : model.layer) layers.push_back(pack(shape, format));
    }
    const bool has_head = model.head.n > 0 && !format.quant.float4;  // it is never MXFP4
    if (rows == 1 && has_head) layers.push_back(pack(model.head, format));
    const double pack_seconds = now() - pack_start;
    double source_bytes = 0;
    for (const Layer& layer : layers) {
      bytes += static_cast<double>(layer.weight->bytes());
      source_bytes += static_cast<double>(layer.shape.n * layer.shape.k) *
                      static_cast<double>(dtype_size(format.source));
    }
    std::vector<double> shares, rates, floors;
    std::vector<std::vector<double>> by_op(model.layer.size() + 1);
    for (int pass = 0; pass < 9; ++pass) {
      const double before = probe_.bytes_per_second(1), peak = measure_peak(threads_);
      std::vector<double> op_bytes(by_op.size()), op_seconds(by_op.size());
      const double start = now();
      double last = start;
      for (size_t i = 0; i < layers.size(); ++i) {
        apply(layers[i], rows);
        const double time = now();
        const bool head = i == static_cast<size_t>(model.layers) * model.layer.size();
        const size_t op = head ? model.layer.size() : i % model.layer.size();
        op_bytes[op] += static_cast<double>(layers[i].weight->bytes());
        op_seconds[op] += time - last;
        last = time;
      }
      const double rate = bytes / (last - start);
      const double limit = 0.5 * (before + probe_.bytes_per_second(1));
      double floor = 0;
      for (const Layer& layer : layers) {
        const auto work = static_cast<double>(2 * rows * layer.shape.n * layer.shape.k);
        floor += std::max(static_cast<double>(layer.weight->bytes()) / limit, work / peak);
      }
      floors.push_back(floor / (last - start));
      rates.push_back(rate);
      shares.push_back(rate / limit);
      for (size_t op = 0; op < by_op.size(); ++op) {
        if (op_seconds[op] > 0) by_op[op].push_back(op_bytes[op] / op_seconds[op] / limit);
      }
    }
    std::printf("%-15s %-9s decode x%-2ld: %5.1f GB/s, %3.0f %% of floor, %3.0f %% of bandwidth (",
                model.name, format.name, static_cast<long>(rows), median(rates) * 1e-9,
                100 * median(floors), 100 * median(shares));
    for (size_t op = 0; op < by_op.size(); ++op) {
      const char* name = op < model.layer.size() ? model.layer[op].name : model.head.name;
      if (!by_op[op].empty()) std::printf(" %s %.0f", name, 100 * median(by_op[op]));
    }
    std::printf(" ); packed at %.1f GB/s\n", source_bytes / pack_seconds * 1e-9);
  }

  void prefill(const ModelShape& model, const Format& format, double (*measure_peak)(int)) {
    double operations = 0, seconds = 0, floor = 0;
    std::string detail;
    for (const MatrixShape& shape : model.layer) {
      const Layer layer = pack(shape, format);
      std::vector<double> times, peaks;
      for (int i = 0; i < 9; ++i) {
        peaks.push_back(measure_peak(threads_));
        const double start = now();
        apply(layer, rows_);
        times.push_back(now() - start);
      }
      const double work = 2.0 * static_cast<double>(rows_ * shape.n * shape.k);
      operations += work;
      seconds += median(times);
      floor += work / median(peaks);
      detail += std::string(" ") + shape.name + " " +
                std::to_string(std::lround(100 * work / median(times) / median(peaks)));
    }
    std::printf("%-15s %-9s prefill %ld: %5.0f GOP/s, %3.0f %% of peak (%s )\n", model.name,
                format.name, static_cast<long>(rows_), operations / seconds * 1e-9,
                100 * floor / seconds, detail.c_str());
  }

  std::unique_ptr<Backend> backend_;
  int threads_;
  int64_t rows_;
  ReadProbe probe_;
  std::vector<float> source_;
  std::vector<uint16_t> halves_;
  Float4Codes float4_;
  Backend::Buffer input_, output_;
};

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  const int default_threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  using namespace headrace::bench;
  const bool smoke = argc > 1 && std::string(argv[1]) == "smoke";
  const int threads = argc > 2 ? std::max(1, std::atoi(argv[2])) : default_threads;
  const int64_t rows = argc > 3 ? std::max(1, std::atoi(argv[3])) : 512;
  try {
    const std::string isa = argc > 1 && !smoke ? argv[1] : headrace::available_cpu_isas().front();
    if (smoke) {
      Bench(isa, 2, 20, size_t{4} << 20).run(smoke_models(), "", "");
    } else {
      Bench(isa, threads, rows, size_t{1} << 30)
          .run(published_models(), argc > 4 ? argv[4] : "", argc > 5 ? argv[5] : "");
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "micro_linear: %s\n", error.what());
    return 1;
  }
  return 0;
}
