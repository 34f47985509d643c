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

  using E = PoolingParams;
  StructBinder<E>(module, "PoolingParams", "Embeddings: headrace/pooling_params.h.")
      .field("pooling", &E::pooling)
      .field("dimensions", &E::dimensions)
      .field("normalize", &E::normalize)
      .field("logit_token_ids", &E::logit_token_ids);

  using S = SamplingParams;
  StructBinder<S>(module, "SamplingParams", "How tokens are chosen: headrace/sampling_params.h.")
      .field("temperature", &S::temperature)
      .field("top_p", &S::top_p)
      .field("top_k", &S::top_k)
      .field("min_p", &S::min_p)
      .field("seed", &S::seed)
      .field("repetition_penalty", &S::repetition_penalty)
      .field("frequency_penalty", &S::frequency_penalty)
      .field("presence_penalty", &S::presence_penalty)
      .field("penalize_output_only", &S::penalize_output_only)
      .field("no_repeat_ngram_size", &S::no_repeat_ngram_size)
      .field("logit_bias", &S::logit_bias)
      .field("bad_words", &S::bad_words)
      .field("max_tokens", &S::max_tokens)
      .field("min_tokens", &S::min_tokens)
      .field("ignore_eos", &S::ignore_eos)
      .field("stop_token_ids", &S::stop_token_ids)
      .field("stop_sequences", &S::stop_sequences)
      .field("stop_sequences_anywhere", &S::stop_sequences_anywhere)
      .field("logprobs", &S::logprobs)
      .field("prompt_logprobs", &S::prompt_logprobs)
      .field("logprobs_kind", &S::logprobs_kind)
      .field("temperature_scaled_logprobs", &S::temperature_scaled_logprobs)
      .field("top_p_normalized_logprobs", &S::top_p_normalized_logprobs);

  using P = SpeculativeOptions;
  StructBinder<P>(module, "SpeculativeOptions", "Guessing of tokens: headrace/options.h.")
      .field("method", &P::method)
      .field("num_speculative_tokens", &P::num_speculative_tokens)
      .field("min_ngram_size", &P::min_ngram_size)
      .field("max_ngram_size", &P::max_ngram_size)
      .field("model", &P::model);

  using M = ModelOptions;
  StructBinder<M>(module, "ModelOptions", "How a model is loaded and run: headrace/options.h.")
      .required("path", &M::path)
      .field("device", &M::device)
      .field("tensor_parallel_size", &M::tensor_parallel_size)
      .field("devices", &M::devices)
      .field("enable_expert_parallel", &M::enable_expert_parallel)
      .field("data_parallel_size", &M::data_parallel_size)
      .field("dtype", &M::dtype)
      .field("quantization", &M::quantization)
      .field("quantization_group_size", &M::quantization_group_size)
      .field("kv_cache_dtype", &M::kv_cache_dtype)
      .field("num_threads", &M::num_threads)
      .field("cpu_isa", &M::cpu_isa)
      .field("max_model_len", &M::max_model_len)
      .field("max_num_seqs", &M::max_num_seqs)
      .field("max_num_batched_tokens", &M::max_num_batched_tokens)
      .field("block_size", &M::block_size)
      .field("num_kv_blocks", &M::num_kv_blocks)
      .field("kv_cache_bytes", &M::kv_cache_bytes)
      .field("memory_utilization", &M::memory_utilization)
      .field("total_memory_ratio", &M::total_memory_ratio)
      .field("memory_leftover_bytes", &M::memory_leftover_bytes)
      .field("enable_prefix_caching", &M::enable_prefix_caching)
      .field("swap_space", &M::swap_space)
      .field("out_of_blocks", &M::out_of_blocks)
      .field("max_prefill_chunk", &M::max_prefill_chunk)
      .field("packed_weights", &M::packed_weights)
      .field("packed_copy", &M::packed_copy)
      .field("max_loras", &M::max_loras)
      .field("max_lora_rank", &M::max_lora_rank)
      .field("speculative", &M::speculative)
      .field("max_encoder_tokens", &M::max_encoder_tokens)
      .field("encoder_cache_bytes", &M::encoder_cache_bytes)
      .field("dummy_weights", &M::dummy_weights);
}

}  // namespace headrace::python
