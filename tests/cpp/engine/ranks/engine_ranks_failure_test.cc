// A device of several that fails in the middle of a step, here a group of CPU threads: the step's
// requests end with the reason, the others wait for nobody, and what comes next gets the bits that
// it always got. (GPUs: tests/cuda/host/ranks.)

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/cpu_isa.h"
#include "backend/ranks/rank_group.h"
#include "base/log.h"
#include "cpp/engine/expect_error.h"
#include "cpp/model/golden_case.h"
#include "engine/engine_access.h"
#include "engine/load/load_model.h"
#include "engine/load/load_watch.h"
#include "fakes/fake_engine.h"

namespace headrace {
namespace {

using testing::expect_error;
using testing::read_all;

/// Where a rank fails.
enum class Op { kNone, kEmbed, kReduce, kAttention, kGather };

/// Fails in an op of the nth step that computes it, as often as it is told.
struct Plan {
  std::atomic<Op> op{Op::kNone};
  std::atomic<int> after{0};  ///< calls that succeed before
  std::atomic<int> times{0};

  void check(Op now) {
    if (now != op.load() || after.fetch_sub(1) > 0) return;
    if (times.fetch_sub(1) > 0) throw_error(ErrorCode::kInternal, "a planted fault");
    op = Op::kNone;
  }
};

class FailingRank final : public CpuBackend {
 public:
  explicit FailingRank(Plan& plan) : CpuBackend(select_cpu_isa(""), 1, 0), plan_(plan) {}

  void embed_part(const PackedWeight& table, int32_t first, TensorView out) override {
    plan_.check(Op::kEmbed);
    CpuBackend::embed_part(table, first, out);
  }
  void all_reduce_add_rms_norm(const ReduceAddNorm& args) override {
    plan_.check(Op::kReduce);
    CpuBackend::all_reduce_add_rms_norm(args);
  }
  void attention(TensorView q, const AttentionSpec& spec, const KvCache& cache, int32_t layer,
                 TensorView out) override {
    plan_.check(Op::kAttention);
    CpuBackend::attention(q, spec, cache, layer, out);
  }
  void gather_columns(TensorView x, TensorView out) override {
    plan_.check(Op::kGather);
    CpuBackend::gather_columns(x, out);
  }

 private:
  Plan& plan_;
};

/// A model of `count` ranks, each with a plan.
class Ranks {
 public:
  explicit Ranks(int32_t count) : plans(static_cast<size_t>(count)) {
    const auto open = [this](const ModelOptions&, bool, const BackendNeeds& needs, Logger&) {
      auto backend = std::make_shared<FailingRank>(plans[opened_++ % plans.size()]);
      backend->require(needs);
      backends.push_back(backend);
      return backend;
    };
    engine = internal::EngineAccess::make(
        {}, [open](const std::string& name, const ModelOptions& options,
                   const internal::ReplicaPlace& replica, Logger& logger) {
          return internal::load_model_on(open, name, options, replica, logger);
        });
    ModelOptions options;
    options.path = load_golden_case("llama").folder;
    options.device = "cpu";
    options.dtype = "float32";
    options.tensor_parallel_size = options.num_threads = count;
    options.max_num_seqs = 1;
    options.num_kv_blocks = 64;
    engine->install_model("m", options);
    engine->start_model("m");
  }

  void fail(size_t rank, Op op, int after, int times) {
    plans[rank].after = after;
    plans[rank].times = times;
    plans[rank].op = op;
  }
  Request submit(int32_t first) {
    RequestOptions request;
    request.prompt_token_ids = {first, 17, 3, 29, 11, 8, 5, 23};
    request.sampling = {.temperature = 0, .max_tokens = 8, .ignore_eos = true};
    request.sampling.logprobs = 2;
    return engine->submit("m", request);
  }

  std::vector<Plan> plans;
  std::vector<std::weak_ptr<FailingRank>> backends;
  std::unique_ptr<Engine> engine;

 private:
  size_t opened_ = 0;
};

void expect_same(const Output& a, const Output& b) {
  EXPECT_EQ(a.error_message, "");
  EXPECT_EQ(a.token_ids, b.token_ids);
  ASSERT_EQ(a.logprobs.size(), b.logprobs.size());
  for (size_t i = 0; i < a.logprobs.size(); ++i) EXPECT_EQ(a.logprobs[i].top, b.logprobs[i].top);
}

// In a prompt and in a decode, on the first rank and on the last. One request runs, one waits.
TEST(EngineRanksFailure, AFailedStepEndsItsRequestsAndNoOthers) {
  for (const int32_t count : {2, 4}) {
    Ranks ranks(count);
    const Output want = read_all(ranks.submit(9).results());
    EXPECT_EQ(want.error_message, "");
    for (const size_t rank : {size_t{0}, static_cast<size_t>(count - 1)}) {
      for (const Op op : {Op::kEmbed, Op::kReduce, Op::kAttention, Op::kGather}) {
        for (const int after : {0, 5}) {
          SCOPED_TRACE(::testing::Message() << count << " ranks, " << rank << ", op "
                                            << static_cast<int>(op) << ", " << after);
          ranks.fail(rank, op, after, 1);
          const Request hit = ranks.submit(40), waits = ranks.submit(9);
          const Output out = read_all(hit.results());
          EXPECT_EQ(out.finish_reason, FinishReason::kError);
          EXPECT_EQ(out.error_code, ErrorCode::kInternal);
          EXPECT_NE(out.error_message.find("a planted fault"), std::string::npos)
              << out.error_message;
          expect_same(read_all(waits.results()), want);
          const ModelStats stats = ranks.engine->model_stats("m");
          EXPECT_EQ(stats.state, ModelState::kRunning);
          EXPECT_EQ(stats.free_kv_blocks, stats.total_kv_blocks);
        }
      }
    }
  }
}

// Whatever they do next: their weights are of no use to anyone.
TEST(EngineRanksFailure, WhileLoadingEndsTheOthersLoads) {
  internal::LoadWatch watch({});
  watch.enter(LoadStage::kWeights);
  watch.check();
  watch.fail();
  EXPECT_THROW(watch.check(), OtherRankFailed);
  EXPECT_THROW(watch.checker()(), OtherRankFailed);
  EXPECT_THROW(watch.pass(1), OtherRankFailed);
}

TEST(EngineRanksFailure, ThreeInARowFailTheModelWhichGivesItsMemoryBack) {
  Ranks ranks(2);
  ranks.fail(1, Op::kReduce, 1, 1000);
  std::vector<Request> requests;
  for (int32_t i = 0; i < 5; ++i) requests.push_back(ranks.submit(i + 3));
  for (size_t i = 0; i < requests.size(); ++i) {
    const Output out = read_all(requests[i].results());
    EXPECT_EQ(out.finish_reason, FinishReason::kError) << i;
    EXPECT_NE(out.error_message.find(i < 3 ? "a planted fault" : "steps in a row failed"),
              std::string::npos)
        << out.error_message;
  }
  ranks.engine->stop_model("m");
  EXPECT_EQ(ranks.engine->model_stats("m").state, ModelState::kFailed);
  expect_error(ErrorCode::kInvalidState, {"failed"}, [&] { ranks.submit(3); });
  ranks.engine->release_model("m");
  for (const auto& backend : ranks.backends) EXPECT_TRUE(backend.expired());
}

}  // namespace
}  // namespace headrace
