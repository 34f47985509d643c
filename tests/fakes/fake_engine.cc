#include "fakes/fake_engine.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/engine_access.h"
#include "engine/guess/mtp_drafter.h"
#include "engine/guess/speculator.h"
#include "fakes/ahead_runner.h"
#include "model/lora/lora_adapter.h"

namespace headrace::testing {

namespace {

int32_t fake_unread(const ModelOptions& options) {
  return internal::Speculator::kFreeRead + options.speculative.num_speculative_tokens;
}

/// The draft model is the same model, in a cache of its own; unless its path is "other". A
/// "failing" one fails in each step. So does an MTP block.
std::unique_ptr<internal::Speculator> fake_speculator(const ModelOptions& options,
                                                      const FakeShape& shape, FakeRunner& runner) {
  std::unique_ptr<internal::DraftModel> draft;
  std::unique_ptr<internal::MtpDrafter> mtp;
  if (options.speculative.method == "mtp") {
    const int32_t rows = std::max(options.max_num_batched_tokens, options.max_num_seqs);
    mtp = std::make_unique<internal::MtpDrafter>(
        runner, internal::MtpDrafter::Limits{rows, fake_unread(options), shape.max_kept});
  }
  if (options.speculative.method == "draft_model") {
    FakeShape own = shape;
    own.num_state_slots = own.num_host_state_slots = 0;
    own.salt = options.speculative.model == "other" ? 1 : 0;
    auto control = std::make_shared<FakeControl>();
    if (options.speculative.model == "failing") control->fail_steps(-1);
    draft = std::make_unique<internal::DraftModel>(
        std::make_unique<FakeRunner>(own, std::move(control)),
        internal::DraftModel::Limits{std::max(options.max_num_batched_tokens, options.max_num_seqs),
                                     own.block_size, own.num_blocks});
  }
  return std::make_unique<internal::Speculator>(options.speculative, shape.costs, std::move(draft),
                                                std::move(mtp));
}

}  // namespace

internal::ModelLoader fake_loader(std::shared_ptr<FakeControl> control, FakeShape shape) {
  return [control, shape](const std::string& name, const ModelOptions& options,
                          const internal::ReplicaPlace&, Logger&) {
    if (control->fail_loading) throw Error(ErrorCode::kCorruptFile, "injected loading failure");
    FakeShape own = shape;
    own.block_size = options.block_size;
    if (options.num_kv_blocks > 0) own.num_blocks = options.num_kv_blocks;
    internal::LoadedModel out;
    out.scheduler.max_num_seqs = options.max_num_seqs;
    out.scheduler.max_num_batched_tokens =
        std::max(options.max_num_batched_tokens, options.max_num_seqs);
    out.scheduler.max_prefill_chunk = options.max_prefill_chunk;
    out.scheduler.max_model_len = options.max_model_len;
    out.scheduler.block_size = own.block_size;
    out.scheduler.num_blocks = own.num_blocks;
    out.scheduler.num_host_blocks = own.num_host_blocks;
    out.scheduler.num_state_slots = own.num_state_slots;
    out.scheduler.num_host_state_slots = own.num_host_state_slots;
    out.scheduler.snapshot_interval = 2 * own.block_size;
    out.scheduler.enable_prefix_caching = options.enable_prefix_caching;
    out.scheduler.out_of_blocks = options.out_of_blocks;
    out.info = {.name = name, .path = options.path};
    out.info.vocab_size = own.vocab_size;
    out.info.hidden_size = 2;
    out.info.max_model_len = options.max_model_len;
    out.info.eos_token_ids = {0};
    out.info.max_loras = options.max_loras;
    out.load_lora = [control](const std::string& path) { return control->load_lora(path); };
    own.max_kept = int64_t{options.max_num_seqs} * fake_unread(options);
    own.mtp_salt = options.speculative.model == "other" ? 1 : 0;
    own.mtp_fails = options.speculative.model == "failing";
    out.first_vision_token = own.first_vision_token;
    if (own.tower != nullptr) {
      internal::MediaLimits& limits = out.encoder.limits;
      limits.refusal.clear();
      limits.tower = out.encoder.tower = own.tower;
      limits.hidden_size = kFakeHidden;
      limits.num_layers = 3;
      limits.rope_axes = true;
      limits.cache_bytes = options.encoder_cache_bytes;
      limits.most_scratch = 4096;
      out.encoder.max_rows = out.scheduler.max_num_batched_tokens;
      out.encoder.max_tokens = std::max(1, options.max_encoder_tokens);
    }
    auto runner = std::make_unique<FakeRunner>(own, control);
    if (!options.speculative.method.empty()) {
      out.speculator = fake_speculator(options, own, *runner);
    }
    out.runner = std::move(runner);
    if (own.late || own.ahead) {
      out.runner =
          std::make_unique<AheadRunner>(std::move(out.runner), control, own.vocab_size, own.ahead);
    }
    return out;
  };
}

ModelOptions FakeEngine::default_options() {
  ModelOptions options;
  options.path = "fake";
  options.max_model_len = 256;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 64;
  options.block_size = 16;
  options.num_kv_blocks = 64;
  return options;
}

FakeEngine::FakeEngine(ModelOptions options, FakeShape shape)
    : control(std::make_shared<FakeControl>()),
      engine(internal::EngineAccess::make({}, fake_loader(control, shape))) {
  engine->install_model("m", options);
  engine->start_model("m");
}

Request FakeEngine::submit(std::vector<int32_t> prompt, SamplingParams sampling,
                           RequestOptions rest) {
  rest.prompt_token_ids = std::move(prompt);
  rest.sampling = std::move(sampling);
  return engine->submit("m", std::move(rest));
}

Output read_all(ResultQueue queue) {
  Output all;
  for (;;) {
    Output next = queue.get();
    std::ranges::copy(next.token_ids, std::back_inserter(all.token_ids));
    std::ranges::copy(next.logprobs, std::back_inserter(all.logprobs));
    std::ranges::copy(next.prompt_logprobs, std::back_inserter(all.prompt_logprobs));
    if (!next.finished) continue;
    next.token_ids = std::move(all.token_ids);
    next.logprobs = std::move(all.logprobs);
    next.prompt_logprobs = std::move(all.prompt_logprobs);
    return next;
  }
}

}  // namespace headrace::testing
