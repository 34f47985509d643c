// Written by tools/generate_options.py from the headers that it includes.
// clang-format off

#include <pybind11/native_enum.h>
#include <pybind11/stl.h>

#include "bindings.h"
#include "headrace/options.h"
#include "headrace/pooling_params.h"
#include "headrace/sampling_params.h"
#include "struct_binder.h"

namespace py = pybind11;

namespace headrace::python {

void bind_options(py::module_& module) {
  py::native_enum<LogprobsKind>(module, "LogprobsKind", kEnumBase)
      .value("RAW_LOGPROBS", LogprobsKind::kRawLogprobs)
      .value("RAW_LOGITS", LogprobsKind::kRawLogits)
      .value("PROCESSED_LOGPROBS", LogprobsKind::kProcessedLogprobs)
      .value("PROCESSED_LOGITS", LogprobsKind::kProcessedLogits)
      .value("PENALIZED_LOGPROBS", LogprobsKind::kPenalizedLogprobs)
      .finalize();
  py::native_enum<OutOfBlocks>(module, "OutOfBlocks", kEnumBase)
      .value("PREEMPT", OutOfBlocks::kPreempt)
      .value("INTERRUPT_LONGEST", OutOfBlocks::kInterruptLongest)
      .value("INTERRUPT_RANDOM", OutOfBlocks::kInterruptRandom)
      .finalize();
  py::native_enum<Pooling>(module, "Pooling", kEnumBase)
      .value("LAST", Pooling::kLast)
      .value("MEAN", Pooling::kMean)
      .value("CLS", Pooling::kCls)
      .finalize();
  StructBinder<PoolingParams>(module, "PoolingParams", "Embeddings: headrace/pooling_params.h.")
      .field("pooling", &PoolingParams::pooling)
      .field("dimensions", &PoolingParams::dimensions)
      .field("normalize", &PoolingParams::normalize)
      .field("logit_token_ids", &PoolingParams::logit_token_ids)
      .field("use_head", &PoolingParams::use_head)
      .field("second_text_at", &PoolingParams::second_text_at);
  StructBinder<SamplingParams>(module, "SamplingParams", "How tokens are chosen: headrace/sampling_params.h.")
      .field("temperature", &SamplingParams::temperature)
      .field("top_p", &SamplingParams::top_p)
      .field("top_k", &SamplingParams::top_k)
      .field("min_p", &SamplingParams::min_p)
      .field("seed", &SamplingParams::seed)
      .field("repetition_penalty", &SamplingParams::repetition_penalty)
      .field("frequency_penalty", &SamplingParams::frequency_penalty)
      .field("presence_penalty", &SamplingParams::presence_penalty)
      .field("penalize_output_only", &SamplingParams::penalize_output_only)
      .field("no_repeat_ngram_size", &SamplingParams::no_repeat_ngram_size)
      .field("logit_bias", &SamplingParams::logit_bias)
      .field("bad_words", &SamplingParams::bad_words)
      .field("max_tokens", &SamplingParams::max_tokens)
      .field("min_tokens", &SamplingParams::min_tokens)
      .field("ignore_eos", &SamplingParams::ignore_eos)
      .field("stop_token_ids", &SamplingParams::stop_token_ids)
      .field("stop_sequences", &SamplingParams::stop_sequences)
      .field("stop_sequences_anywhere", &SamplingParams::stop_sequences_anywhere)
      .field("logprobs", &SamplingParams::logprobs)
      .field("prompt_logprobs", &SamplingParams::prompt_logprobs)
      .field("logprobs_kind", &SamplingParams::logprobs_kind)
      .field("temperature_scaled_logprobs", &SamplingParams::temperature_scaled_logprobs)
      .field("top_p_normalized_logprobs", &SamplingParams::top_p_normalized_logprobs);
  StructBinder<SpeculativeOptions>(module, "SpeculativeOptions", "Guessing of tokens: headrace/options.h.")
      .field("method", &SpeculativeOptions::method)
      .field("num_speculative_tokens", &SpeculativeOptions::num_speculative_tokens)
      .field("min_ngram_size", &SpeculativeOptions::min_ngram_size)
      .field("max_ngram_size", &SpeculativeOptions::max_ngram_size)
      .field("model", &SpeculativeOptions::model);
  StructBinder<ModelOptions>(module, "ModelOptions", "How a model is loaded and run: headrace/options.h.")
      .required("path", &ModelOptions::path)
      .field("device", &ModelOptions::device)
      .field("tensor_parallel_size", &ModelOptions::tensor_parallel_size)
      .field("devices", &ModelOptions::devices)
      .field("enable_expert_parallel", &ModelOptions::enable_expert_parallel)
      .field("data_parallel_size", &ModelOptions::data_parallel_size)
      .field("dtype", &ModelOptions::dtype)
      .field("quantization", &ModelOptions::quantization)
      .field("quantization_group_size", &ModelOptions::quantization_group_size)
      .field("kv_cache_dtype", &ModelOptions::kv_cache_dtype)
      .field("num_threads", &ModelOptions::num_threads)
      .field("cpu_isa", &ModelOptions::cpu_isa)
      .field("max_model_len", &ModelOptions::max_model_len)
      .field("max_num_seqs", &ModelOptions::max_num_seqs)
      .field("max_num_batched_tokens", &ModelOptions::max_num_batched_tokens)
      .field("block_size", &ModelOptions::block_size)
      .field("num_kv_blocks", &ModelOptions::num_kv_blocks)
      .field("kv_cache_bytes", &ModelOptions::kv_cache_bytes)
      .field("memory_utilization", &ModelOptions::memory_utilization)
      .field("total_memory_ratio", &ModelOptions::total_memory_ratio)
      .field("memory_leftover_bytes", &ModelOptions::memory_leftover_bytes)
      .field("enable_prefix_caching", &ModelOptions::enable_prefix_caching)
      .field("num_state_slots", &ModelOptions::num_state_slots)
      .field("snapshot_interval", &ModelOptions::snapshot_interval)
      .field("swap_space", &ModelOptions::swap_space)
      .field("out_of_blocks", &ModelOptions::out_of_blocks)
      .field("max_prefill_chunk", &ModelOptions::max_prefill_chunk)
      .field("packed_weights", &ModelOptions::packed_weights)
      .field("packed_copy", &ModelOptions::packed_copy)
      .field("max_loras", &ModelOptions::max_loras)
      .field("max_lora_rank", &ModelOptions::max_lora_rank)
      .field("speculative", &ModelOptions::speculative)
      .field("max_encoder_tokens", &ModelOptions::max_encoder_tokens)
      .field("encoder_cache_bytes", &ModelOptions::encoder_cache_bytes)
      .field("dummy_weights", &ModelOptions::dummy_weights);
}

}  // namespace headrace::python
