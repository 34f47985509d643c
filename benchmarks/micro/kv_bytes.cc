// KV bytes that a sequence holds, by the scheduler, of shapes whose layers have windows, beside one
// cache for all layers that keeps all rows.
//
//   micro_kv_bytes [CONTEXT] [BLOCK_SIZE]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "model/sources/cache_layout.h"
#include "sched/scheduler.h"

namespace headrace::bench {
namespace {

constexpr int32_t kStepRows = 512;

struct Shape {
  const char* name;
  int32_t layers, kv_heads, head_dim, window;
  int32_t full_every;  ///< every so many layers one keeps all rows; 0: none
};

constexpr Shape kShapes[] = {{"gemma-3-4b", 34, 4, 256, 1024, 6},
                             {"gpt-oss-20b", 24, 8, 64, 128, 2},
                             {"mistral-7b-v0.1", 32, 8, 128, 4096, 0}};

CacheLayout layout_of(const Shape& shape, const CacheOptions& options) {
  std::vector<LayerKeeps> layers(static_cast<size_t>(shape.layers),
                                 {kv_rows(shape.kv_heads, shape.head_dim, options.dtype), {}});
  for (int32_t i = 0; i < shape.layers; ++i) {
    const bool is_full = shape.full_every > 0 && (i + 1) % shape.full_every == 0;
    layers[static_cast<size_t>(i)].rows.window = is_full ? 0 : shape.window;
  }
  return make_cache_layout(layers, options);
}

/// Blocks held while a prompt of `context` tokens is computed, and behind it.
struct Held {
  int32_t most = 0, last = 0;
};

Held run(const CacheLayout& layout, int32_t context) {
  SchedulerConfig config;
  config.max_num_seqs = 1;
  config.max_num_batched_tokens = kStepRows;
  config.max_model_len = context + 2;
  config.block_size = layout.block_size;
  config.num_blocks = (context / layout.block_size + 2) * layout.num_groups();
  config.windows.clear();
  for (const CacheGroup& group : layout.groups) config.windows.push_back(group.rows.window);
  Scheduler scheduler(config);
  SeqSpec spec;
  spec.prompt.assign(static_cast<size_t>(context), 1);
  spec.max_tokens = 2;
  scheduler.add(spec);
  Held out;
  for (bool samples = false; !samples;) {
    const StepPlan plan = scheduler.plan(0);
    out.most = std::max(out.most, config.num_blocks - scheduler.stats().free_blocks);
    samples = plan.seqs.front().samples;
    scheduler.commit(samples ? std::vector<int32_t>{1} : std::vector<int32_t>{});
    out.last = config.num_blocks - scheduler.stats().free_blocks;
  }
  return out;
}

void print_shapes(int32_t context, int32_t block_size) {
  const auto backend = make_cpu_backend({.num_threads = 1});
  std::printf("%-16s %6s %10s %10s %10s %6s\n", "bf16, MiB", "groups", "uniform", "prefill",
              "decode", "share");
  for (const Shape& shape : kShapes) {
    CacheOptions options{.block_size = block_size, .dtype = DType::kBF16};
    const auto mib = [&](const CacheLayout& layout, int32_t blocks) {
      return static_cast<double>(backend->kv_block_bytes(layout)) * blocks / (1 << 20);
    };
    const CacheLayout uniform = layout_of(shape, options);
    options.windows_below = context;
    const CacheLayout groups = layout_of(shape, options);
    const double all = mib(uniform, run(uniform, context).last);
    const Held held = run(groups, context);
    std::printf("%-16s %6d %10.1f %10.1f %10.1f %6.3f\n", shape.name, groups.num_groups(), all,
                mib(groups, held.most), mib(groups, held.last), mib(groups, held.last) / all);
  }
}

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  try {
    headrace::bench::print_shapes(argc > 1 ? std::atoi(argv[1]) : 32768,
                                  argc > 2 ? std::atoi(argv[2]) : 64);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
