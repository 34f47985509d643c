// Structs of callers with an older or a newer header, NULL everywhere, and what becomes of
// exceptions.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "c_api/c_options.h"
#include "c_api/c_struct.h"
#include "headrace/c.h"
#include "headrace/c_text.h"
#include "headrace/chat.h"
#include "headrace/engine.h"
#include "headrace/grammar.h"
#include "headrace/text.h"
#include "headrace/text_output.h"

namespace headrace::c_api {
namespace {

// A field added in padding would be read from callers that never set it.
#define EXPECT_NO_TAIL_PADDING(type, last) \
  static_assert(offsetof(type, last) + sizeof(type::last) == sizeof(type))
EXPECT_NO_TAIL_PADDING(headrace_engine_options, log_user_data);
EXPECT_NO_TAIL_PADDING(headrace_model_options, reserved);
EXPECT_NO_TAIL_PADDING(headrace_load_progress, reserved);
EXPECT_NO_TAIL_PADDING(headrace_sampling_params, reserved);
EXPECT_NO_TAIL_PADDING(headrace_pooling_params, reserved);
EXPECT_NO_TAIL_PADDING(headrace_request_options, grammar);
EXPECT_NO_TAIL_PADDING(headrace_text, length);
EXPECT_NO_TAIL_PADDING(headrace_encode_options, reserved);
EXPECT_NO_TAIL_PADDING(headrace_encoding, spans);
EXPECT_NO_TAIL_PADDING(headrace_detokenizer_options, include_stop_string);
EXPECT_NO_TAIL_PADDING(headrace_detokenizer_state, released);
EXPECT_NO_TAIL_PADDING(headrace_chat_options, continue_final_message);
EXPECT_NO_TAIL_PADDING(headrace_text_options, reserved);
EXPECT_NO_TAIL_PADDING(headrace_text_output, output);
EXPECT_NO_TAIL_PADDING(headrace_grammar_options, max_lexer_states);
EXPECT_NO_TAIL_PADDING(headrace_media_run, num_steps);
EXPECT_NO_TAIL_PADDING(headrace_media_input, num_runs);
EXPECT_NO_TAIL_PADDING(headrace_constraint, release);
EXPECT_NO_TAIL_PADDING(headrace_model_stats, prefix_unused_tokens);
EXPECT_NO_TAIL_PADDING(headrace_model_info, num_kv_windows);
EXPECT_NO_TAIL_PADDING(headrace_lora_info, reserved);
EXPECT_NO_TAIL_PADDING(headrace_request_stats, reserved);
EXPECT_NO_TAIL_PADDING(headrace_output, reserved);

// Do these no longer compile? Then give C the field that C++ has got, and name it here.
// (tools/generate_options.py gives C the fields of ModelOptions, SamplingParams and PoolingParams.)
[[maybe_unused]] void every_field_of_cpp_is_known(const RequestOptions& request,
                                                  const ModelInfo& info, const ModelStats& stats,
                                                  const RequestStats& request_stats,
                                                  const Output& output, const LoraInfo& lora_info) {
  [[maybe_unused]] const auto& [id, prompt, how, lora, priority, timeout, constraint, pooling,
                                media] = request;
  [[maybe_unused]] const auto& [i0, i1, i2, i3, i4, i5, i6, quantized, parameters,
                                active_parameters, experts, active_experts, vocab, hidden, layers,
                                heads, kv_heads, head_dim, intermediate, i15, i16, i17, i18, i19,
                                i20, host_blocks, kv_groups, kept, slots, host_slots, interval,
                                ranks_too, replicas_too, nodes, i22, i23, causal, generates,
                                outputs, classifies, pooled_by, pairs, vision, embeddings,
                                most_encoded, encoded_bytes, tower_bytes, token_bytes, i24, i25,
                                i26, reserved, left, host_bytes, slot_bytes, mapped_weights,
                                packed_file, replaced, load, eos] = info;
  [[maybe_unused]] const auto& [state, running_replicas, waiting, running, total, free, cached,
                                host_cached, slots_in_all, free_slots, cached_slots,
                                cached_host_slots, finished, preempted, interrupted, steps, prompts,
                                generated, hits, misses, host_hits, to_host, from_host, saved,
                                evicted, restored, unused, busy, masks, memory, pool, mapped,
                                drafted, accepted, encoded, found, cache_bytes] = stats;
  [[maybe_unused]] const auto& [arrival, scheduled, first, last, end, r5, r6, from_swap, r7, r8,
                                replica, images, clips] = request_stats;
  [[maybe_unused]] const auto& [ids, o1, o2, pooled, done, reason, stop, sequence, code, message] =
      output;
  [[maybe_unused]] const auto& [lora_name, folder, rank, modules, bytes, live] = lora_info;
}

[[maybe_unused]] void every_field_of_texts_is_known(const EncodeOptions& encode,
                                                    const DetokenizerOptions& detokenize,
                                                    const OutputTextOptions& output,
                                                    const StopMatch& match, const ChatOptions& chat,
                                                    const TextOptions& text,
                                                    const GrammarLimits& limits) {
  [[maybe_unused]] const auto& [add, as_text, most] = encode;
  [[maybe_unused]] const auto& [skip, shown, after] = detokenize;
  // Whoever has C's released() cuts tokens.
  [[maybe_unused]] const auto& [min_tokens, keeps, cuts] = output;
  [[maybe_unused]] const auto& [string, start, end, start_char, end_char] = match;
  [[maybe_unused]] const auto& [tools, chat_template, variables, opens, goes_on] = chat;
  [[maybe_unused]] const auto& [stop, include, skip_special, add_special, request] = text;
  [[maybe_unused]] const auto& [schema, grammar, size, fuel, token_fuel, items, states] = limits;
}

struct Older {
  size_t struct_size;
  int32_t first, second;
};
struct Known {
  size_t struct_size;
  int32_t first, second;
  double third;
};
struct Newer {
  size_t struct_size;
  int32_t first, second;
  double third;
  void* fourth;
};

const Known kDefaults{.struct_size = 0, .first = 1, .second = 2, .third = 3.5};

TEST(CStruct, AnOlderCallersMissingFieldsAreDefaults) {
  const Older given{sizeof(Older), 7, 8};
  const Known read = read_struct(reinterpret_cast<const Known*>(&given), kDefaults, "given");
  EXPECT_EQ(read.first, 7);
  EXPECT_EQ(read.second, 8);
  EXPECT_EQ(read.third, 3.5);
}

TEST(CStruct, ANewerCallersUnknownFieldsMustBeZero) {
  Newer given{sizeof(Newer), 7, 8, 9.5, nullptr};
  const auto* known = reinterpret_cast<const Known*>(&given);
  EXPECT_EQ(read_struct(known, kDefaults, "given").third, 9.5);
  given.fourth = &given;
  EXPECT_EQ(guarded([&] { read_struct(known, kDefaults, "given"); }), HEADRACE_UNSUPPORTED);
}

TEST(CStruct, ASizeThatCannotBeIsRefused) {
  Known given{};
  for (size_t size : {size_t{0}, size_t{7}, size_t{1} << 20, ~size_t{0}}) {
    given.struct_size = size;
    EXPECT_EQ(guarded([&] { read_struct(&given, kDefaults, "given"); }), HEADRACE_INVALID_ARGUMENT)
        << size;
  }
}

TEST(CStruct, InitWritesNoMoreThanTheCallerHas) {
  Newer given;
  std::memset(&given, 0x5a, sizeof given);
  init_struct(reinterpret_cast<Known*>(&given), sizeof(Older), kDefaults);
  EXPECT_EQ(given.struct_size, sizeof(Older));
  EXPECT_EQ(given.second, 2);
  EXPECT_NE(given.third, 3.5);
  init_struct(reinterpret_cast<Known*>(&given), sizeof(Newer), kDefaults);
  EXPECT_EQ(given.struct_size, sizeof(Newer));
  EXPECT_EQ(given.third, 3.5);
  EXPECT_EQ(given.fourth, nullptr);
}

TEST(CStruct, DefaultsAreThoseOfCpp) {
  headrace_model_options c;
  headrace_model_options_init(&c, sizeof c);
  const ModelOptions made = to_model_options(&c);
  const ModelOptions cpp;
  EXPECT_EQ(made.path, cpp.path);
  EXPECT_EQ(made.device, cpp.device);
  EXPECT_EQ(made.dtype, cpp.dtype);
  EXPECT_EQ(made.kv_cache_dtype, cpp.kv_cache_dtype);
  EXPECT_EQ(made.quantization, cpp.quantization);
  EXPECT_EQ(made.quantization_group_size, cpp.quantization_group_size);
  EXPECT_EQ(made.cpu_isa, cpp.cpu_isa);
  EXPECT_EQ(made.num_threads, cpp.num_threads);
  EXPECT_EQ(made.max_model_len, cpp.max_model_len);
  EXPECT_EQ(made.max_num_seqs, cpp.max_num_seqs);
  EXPECT_EQ(made.max_num_batched_tokens, cpp.max_num_batched_tokens);
  EXPECT_EQ(made.block_size, cpp.block_size);
  EXPECT_EQ(made.num_kv_blocks, cpp.num_kv_blocks);
  EXPECT_EQ(made.kv_cache_bytes, cpp.kv_cache_bytes);
  EXPECT_EQ(made.memory_utilization, cpp.memory_utilization);
  EXPECT_EQ(made.total_memory_ratio, cpp.total_memory_ratio);
  EXPECT_EQ(made.memory_leftover_bytes, cpp.memory_leftover_bytes);
  EXPECT_EQ(made.enable_prefix_caching, cpp.enable_prefix_caching);
  EXPECT_EQ(made.swap_space, cpp.swap_space);
  EXPECT_EQ(made.max_prefill_chunk, cpp.max_prefill_chunk);
  EXPECT_EQ(made.dummy_weights, cpp.dummy_weights);
  EXPECT_EQ(made.out_of_blocks, cpp.out_of_blocks);
  EXPECT_EQ(made.packed_weights, cpp.packed_weights);
  EXPECT_EQ(made.packed_copy, cpp.packed_copy);
  EXPECT_EQ(made.max_loras, cpp.max_loras);
  EXPECT_EQ(made.max_lora_rank, cpp.max_lora_rank);
  EXPECT_EQ(made.speculative.method, cpp.speculative.method);
  EXPECT_EQ(made.speculative.model, cpp.speculative.model);
  EXPECT_EQ(made.speculative.num_speculative_tokens, cpp.speculative.num_speculative_tokens);
  EXPECT_EQ(made.speculative.min_ngram_size, cpp.speculative.min_ngram_size);
  EXPECT_EQ(made.speculative.max_ngram_size, cpp.speculative.max_ngram_size);

  headrace_sampling_params sampling;
  headrace_sampling_params_init(&sampling, sizeof sampling);
  headrace_request_options request;
  headrace_request_options_init(&request, sizeof request);
  for (const headrace_sampling_params* given : {&sampling, (headrace_sampling_params*)nullptr}) {
    request.sampling = given;
    std::shared_ptr<ForeignConstraint> constraint;
    const RequestOptions from_c = to_request_options(&request, constraint);
    EXPECT_EQ(constraint, nullptr);
    const SamplingParams expected;
    EXPECT_EQ(from_c.timeout, std::nullopt);
    EXPECT_EQ(from_c.priority, 0);
    EXPECT_EQ(from_c.lora_name, "");
    EXPECT_EQ(from_c.sampling.temperature, expected.temperature);
    EXPECT_EQ(from_c.sampling.top_p, expected.top_p);
    EXPECT_EQ(from_c.sampling.top_k, expected.top_k);
    EXPECT_EQ(from_c.sampling.min_p, expected.min_p);
    EXPECT_EQ(from_c.sampling.seed, expected.seed);
    EXPECT_EQ(from_c.sampling.repetition_penalty, expected.repetition_penalty);
    EXPECT_EQ(from_c.sampling.max_tokens, expected.max_tokens);
    EXPECT_EQ(from_c.sampling.logprobs, expected.logprobs);
    EXPECT_EQ(from_c.sampling.prompt_logprobs, expected.prompt_logprobs);
    EXPECT_EQ(from_c.sampling.logprobs_kind, expected.logprobs_kind);
  }
}

TEST(CStruct, SpeculativeDecodingComesLast) {
  headrace_model_options given;
  headrace_model_options_init(&given, sizeof given);
  given.speculative_method = "ngram";
  given.max_ngram_size = 3;
  EXPECT_EQ(to_model_options(&given).speculative.method, "ngram");
  EXPECT_EQ(to_model_options(&given).speculative.max_ngram_size, 3);
  given.struct_size = offsetof(headrace_model_options, speculative_method);
  EXPECT_EQ(to_model_options(&given).speculative.method, "");
  EXPECT_EQ(to_model_options(&given).speculative.max_ngram_size, 5);
}

TEST(CStruct, SwapSpaceComesBehindAll) {
  headrace_model_options given;
  headrace_model_options_init(&given, sizeof given);
  given.swap_space = 1.5;
  EXPECT_EQ(to_model_options(&given).swap_space, 1.5);
  given.struct_size = offsetof(headrace_model_options, swap_space);
  EXPECT_EQ(to_model_options(&given).swap_space, 0.0);
}

// The group size took the place of a reserved field, and the name comes behind it.
TEST(CStruct, QuantizationComesBehindIt) {
  headrace_model_options given;
  headrace_model_options_init(&given, sizeof given);
  given.quantization_group_size = 64;
  given.quantization = "wint4";
  EXPECT_EQ(to_model_options(&given).quantization, "wint4");
  EXPECT_EQ(to_model_options(&given).quantization_group_size, 64);
  given.struct_size = offsetof(headrace_model_options, quantization);
  given.quantization_group_size = 0;
  EXPECT_EQ(to_model_options(&given).quantization, "");
}

TEST(CStruct, ReservedFieldsMustBeZero) {
  headrace_sampling_params sampling;
  headrace_sampling_params_init(&sampling, sizeof sampling);
  headrace_request_options options;
  headrace_request_options_init(&options, sizeof options);
  options.sampling = &sampling;
  std::shared_ptr<ForeignConstraint> constraint;
  EXPECT_EQ(guarded([&] { to_request_options(&options, constraint); }), HEADRACE_OK);
  sampling.reserved = 1;
  EXPECT_EQ(guarded([&] { to_request_options(&options, constraint); }), HEADRACE_UNSUPPORTED);
  sampling.reserved = 0;
  options.reserved = 1;
  EXPECT_EQ(guarded([&] { to_request_options(&options, constraint); }), HEADRACE_UNSUPPORTED);
}

// Two of them took the places of reserved fields, and the names come behind all.
TEST(CStruct, SeveralDevices) {
  headrace_model_options given;
  headrace_model_options_init(&given, sizeof given);
  EXPECT_EQ(to_model_options(&given).tensor_parallel_size, 1);
  EXPECT_TRUE(to_model_options(&given).devices.empty());
  const char* const names[] = {"cuda:1", "cuda:3"};
  given.tensor_parallel_size = 2;
  given.enable_expert_parallel = 1;
  given.devices = names;
  given.num_devices = 2;
  EXPECT_EQ(to_model_options(&given).tensor_parallel_size, 2);
  EXPECT_TRUE(to_model_options(&given).enable_expert_parallel);
  EXPECT_EQ(to_model_options(&given).devices, (std::vector<std::string>{"cuda:1", "cuda:3"}));
  EXPECT_EQ(to_model_options(&given).data_parallel_size, 1);
  given.data_parallel_size = 2;
  EXPECT_EQ(to_model_options(&given).data_parallel_size, 2);
  given.reserved = 1;
  EXPECT_EQ(guarded([&] { to_model_options(&given); }), HEADRACE_UNSUPPORTED);
  given.struct_size = offsetof(headrace_model_options, devices);
  given.devices = nullptr;
  EXPECT_TRUE(to_model_options(&given).devices.empty());
}

TEST(CError, ExceptionsBecomeCodes) {
  EXPECT_EQ(guarded([] { throw Error(ErrorCode::kIo, "no"); }), HEADRACE_IO);
  EXPECT_STREQ(headrace_last_error_message(), "no");
  EXPECT_EQ(guarded([] { throw std::bad_alloc(); }), HEADRACE_OUT_OF_MEMORY);
  EXPECT_EQ(guarded([] { throw std::logic_error("odd"); }), HEADRACE_INTERNAL);
  EXPECT_STREQ(headrace_last_error_message(), "odd");
  EXPECT_EQ(guarded([] { throw 7; }), HEADRACE_INTERNAL);
  EXPECT_EQ(guarded([] {}), HEADRACE_OK);
  EXPECT_EQ(headrace_last_error_code(), HEADRACE_INTERNAL);
}

TEST(CError, TheLastErrorIsTheThreadsOwn) {
  fail(ErrorCode::kDevice, "mine");
  std::thread([] {
    EXPECT_EQ(headrace_last_error_code(), HEADRACE_OK);
    EXPECT_STREQ(headrace_last_error_message(), "");
    fail(ErrorCode::kIo, "another's");
  }).join();
  EXPECT_STREQ(headrace_last_error_message(), "mine");
}

TEST(CApi, NullIsAnErrorOrIgnored) {
  headrace_engine* engine = nullptr;
  headrace_request* request = nullptr;
  headrace_selector* selector = nullptr;
  const auto refused = [](headrace_code code) {
    EXPECT_EQ(code, HEADRACE_INVALID_ARGUMENT);
    EXPECT_NE(std::string(headrace_last_error_message()).find("is NULL"), std::string::npos);
  };
  refused(headrace_engine_create(nullptr, nullptr));
  headrace_model_options model;
  headrace_model_options_init(&model, sizeof model);
  refused(headrace_engine_install_model(engine, "m", &model));
  refused(headrace_engine_start_model(engine, "m"));
  refused(headrace_pack_model(nullptr, "file"));
  refused(headrace_engine_stop_model(engine, "m", 0, nullptr));
  refused(headrace_engine_release_model(engine, "m"));
  refused(headrace_engine_clear_prefix_cache(engine, "m"));
  refused(headrace_engine_load_lora(engine, "m", "a", "path"));
  refused(headrace_engine_unload_lora(engine, "m", "a"));
  refused(headrace_engine_loras(engine, "m", nullptr));
  refused(headrace_engine_model_stats(engine, "m", nullptr));
  refused(headrace_engine_model_info(engine, "m", nullptr));
  refused(headrace_engine_model_names(engine, nullptr));
  refused(headrace_engine_submit(engine, "m", nullptr, &request));
  refused(headrace_engine_submit(engine, "m", nullptr, nullptr));
  refused(headrace_request_cancel(request));
  refused(headrace_request_wait(request, 0, nullptr));
  refused(headrace_request_seed(request, nullptr));
  refused(headrace_request_get_stats(request, nullptr));
  refused(headrace_request_get(request, 0, nullptr));
  refused(headrace_request_on_output(request, nullptr, nullptr));
  EXPECT_EQ(headrace_request_id(request), nullptr);
  refused(headrace_selector_create(nullptr));
  refused(headrace_selector_add(selector, request, 0, 0));
  refused(headrace_selector_remove(selector, 0));
  refused(headrace_selector_wake(selector));
  refused(headrace_selector_wait(selector, 0, nullptr, 0, nullptr));
  refused(headrace_selector_ready_fd(selector, nullptr));

  headrace_engine_destroy(nullptr);
  headrace_request_release(nullptr);
  headrace_output_release(nullptr);
  headrace_model_info_release(nullptr);
  headrace_model_names_release(nullptr);
  headrace_lora_infos_release(nullptr);
  headrace_selector_destroy(nullptr);
  headrace_model_options_init(nullptr, 8);
}

TEST(CApi, ACreatedEngineKnowsNoModel) {
  headrace_engine* engine = nullptr;
  ASSERT_EQ(headrace_engine_create(nullptr, &engine), HEADRACE_OK);
  EXPECT_EQ(headrace_engine_install_model(engine, "m", nullptr), HEADRACE_INVALID_ARGUMENT);
  EXPECT_EQ(headrace_engine_install_model(engine, nullptr, nullptr), HEADRACE_INVALID_ARGUMENT);
  EXPECT_EQ(headrace_engine_start_model(engine, nullptr), HEADRACE_NOT_FOUND);
  headrace_engine_destroy(engine);
}

}  // namespace
}  // namespace headrace::c_api
