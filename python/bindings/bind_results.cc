#include <pybind11/native_enum.h>
#include <pybind11/stl.h>

#include "bindings.h"
#include "headrace/engine.h"
#include "headrace/result_queue.h"
#include "short_repr.h"

namespace py = pybind11;

namespace headrace::python {

namespace {

void bind_enums(py::module_& module) {
  py::native_enum<RequestStatus>(module, "RequestStatus", kEnumBase)
      .value("WAITING", RequestStatus::kWaiting)
      .value("PREFILL", RequestStatus::kPrefill)
      .value("GENERATING", RequestStatus::kGenerating)
      .value("FINISHED", RequestStatus::kFinished)
      .finalize();
  py::native_enum<FinishReason>(module, "FinishReason", kEnumBase)
      .value("NONE", FinishReason::kNone)
      .value("STOP", FinishReason::kStop)
      .value("LENGTH", FinishReason::kLength)
      .value("ABORT", FinishReason::kAbort)
      .value("ERROR", FinishReason::kError)
      .value("INTERRUPTED", FinishReason::kInterrupted)
      .finalize();
  py::native_enum<ModelState>(module, "ModelState", kEnumBase)
      .value("INSTALLED", ModelState::kInstalled)
      .value("RUNNING", ModelState::kRunning)
      .value("STOPPING", ModelState::kStopping)
      .value("STOPPED", ModelState::kStopped)
      .value("FAILED", ModelState::kFailed)
      .finalize();
}

void bind_output(py::module_& module) {
  using L = PositionLogprobs;
  py::class_<L>(module, "PositionLogprobs")
      .def_readonly("token", &L::token)
      .def_readonly("logprob", &L::logprob)
      .def_readonly("rank", &L::rank)
      .def_readonly("top", &L::top)
      .def("__repr__", short_repr);

  using O = Output;
  py::class_<O>(module, "Output")
      .def_readonly("token_ids", &O::token_ids)
      .def_readonly("logprobs", &O::logprobs)
      .def_readonly("prompt_logprobs", &O::prompt_logprobs)
      .def_readonly("pooled", &O::pooled)
      .def_readonly("finished", &O::finished)
      .def_readonly("finish_reason", &O::finish_reason)
      .def_readonly("stop_token", &O::stop_token)
      .def_readonly("stop_sequence", &O::stop_sequence)
      .def_property_readonly("error_code",
                             [](const O& output) { return error_code_name(output.error_code); })
      .def_readonly("error_message", &O::error_message)
      .def("__repr__", short_repr);

  using R = RequestStats;
  py::class_<R>(module, "RequestStats")
      .def_readonly("arrival_time", &R::arrival_time)
      .def_readonly("first_scheduled_time", &R::first_scheduled_time)
      .def_readonly("first_token_time", &R::first_token_time)
      .def_readonly("last_token_time", &R::last_token_time)
      .def_readonly("finished_time", &R::finished_time)
      .def_readonly("prompt_tokens", &R::prompt_tokens)
      .def_readonly("cached_tokens", &R::cached_tokens)
      .def_readonly("host_cached_tokens", &R::host_cached_tokens)
      .def_readonly("generated_tokens", &R::generated_tokens)
      .def_readonly("preemptions", &R::preemptions)
      .def_readonly("replica", &R::replica)
      .def_readonly("image_tokens", &R::image_tokens)
      .def_readonly("video_tokens", &R::video_tokens)
      .def("__repr__", short_repr);
}

void bind_model_info(py::module_& module) {
  using I = ModelInfo;
  py::class_<I>(module, "ModelInfo")
      .def_readonly("name", &I::name)
      .def_readonly("path", &I::path)
      .def_readonly("family", &I::family)
      .def_readonly("device", &I::device)
      .def_readonly("isa", &I::isa)
      .def_readonly("dtype", &I::dtype)
      .def_readonly("kv_cache_dtype", &I::kv_cache_dtype)
      .def_readonly("quantization", &I::quantization)
      .def_readonly("num_parameters", &I::num_parameters)
      .def_readonly("num_active_parameters", &I::num_active_parameters)
      .def_readonly("num_experts", &I::num_experts)
      .def_readonly("num_active_experts", &I::num_active_experts)
      .def_readonly("vocab_size", &I::vocab_size)
      .def_readonly("hidden_size", &I::hidden_size)
      .def_readonly("num_layers", &I::num_layers)
      .def_readonly("num_heads", &I::num_heads)
      .def_readonly("num_kv_heads", &I::num_kv_heads)
      .def_readonly("head_dim", &I::head_dim)
      .def_readonly("intermediate_size", &I::intermediate_size)
      .def_readonly("max_model_len", &I::max_model_len)
      .def_readonly("max_num_seqs", &I::max_num_seqs)
      .def_readonly("max_num_batched_tokens", &I::max_num_batched_tokens)
      .def_readonly("block_size", &I::block_size)
      .def_readonly("num_kv_blocks", &I::num_kv_blocks)
      .def_readonly("num_host_kv_blocks", &I::num_host_kv_blocks)
      .def_readonly("num_kv_groups", &I::num_kv_groups)
      .def_readonly("kv_numbers", &I::kv_numbers)
      .def_readonly("num_state_slots", &I::num_state_slots)
      .def_readonly("num_host_state_slots", &I::num_host_state_slots)
      .def_readonly("snapshot_interval", &I::snapshot_interval)
      .def_readonly("state_slot_bytes", &I::state_slot_bytes)
      .def_readonly("num_threads", &I::num_threads)
      .def_readonly("tensor_parallel_size", &I::tensor_parallel_size)
      .def_readonly("data_parallel_size", &I::data_parallel_size)
      .def_readonly("num_nodes", &I::num_nodes)
      .def_readonly("max_loras", &I::max_loras)
      .def_readonly("max_lora_rank", &I::max_lora_rank)
      .def_readonly("causal", &I::causal)
      .def_readonly("generates", &I::generates)
      .def_readonly("head_outputs", &I::head_outputs)
      .def_readonly("classifies", &I::classifies)
      .def_readonly("classifier_pooling", &I::classifier_pooling)
      .def_readonly("tells_pairs", &I::tells_pairs)
      .def_readonly("vision", &I::vision)
      .def_readonly("takes_embeddings", &I::takes_embeddings)
      .def_readonly("max_encoder_tokens", &I::max_encoder_tokens)
      .def_readonly("encoder_cache_bytes", &I::encoder_cache_bytes)
      .def_readonly("vision_weight_bytes", &I::vision_weight_bytes)
      .def_readonly("weight_bytes", &I::weight_bytes)
      .def_readonly("token_weight_bytes", &I::token_weight_bytes)
      .def_readonly("mapped_weight_bytes", &I::mapped_weight_bytes)
      .def_readonly("packed_weights", &I::packed_weights)
      .def_readonly("replaced_kernels", &I::replaced_kernels)
      .def_readonly("kv_cache_bytes", &I::kv_cache_bytes)
      .def_readonly("host_kv_cache_bytes", &I::host_kv_cache_bytes)
      .def_readonly("scratch_bytes", &I::scratch_bytes)
      .def_readonly("reserved_bytes", &I::reserved_bytes)
      .def_readonly("device_free_bytes", &I::device_free_bytes)
      .def_readonly("load_seconds", &I::load_seconds)
      .def_readonly("eos_token_ids", &I::eos_token_ids)
      .def("__repr__", short_repr);
}

void bind_lora_info(py::module_& module) {
  using L = LoraInfo;
  py::class_<L>(module, "LoraInfo")
      .def_readonly("name", &L::name)
      .def_readonly("path", &L::path)
      .def_readonly("rank", &L::rank)
      .def_readonly("num_modules", &L::num_modules)
      .def_readonly("bytes", &L::bytes)
      .def_readonly("live_requests", &L::live_requests)
      .def("__repr__", short_repr);
}

void bind_model_stats(py::module_& module) {
  using S = ModelStats;
  py::class_<S>(module, "ModelStats")
      .def_readonly("state", &S::state)
      .def_readonly("running_replicas", &S::running_replicas)
      .def_readonly("waiting_requests", &S::waiting_requests)
      .def_readonly("running_requests", &S::running_requests)
      .def_readonly("total_kv_blocks", &S::total_kv_blocks)
      .def_readonly("free_kv_blocks", &S::free_kv_blocks)
      .def_readonly("cached_kv_blocks", &S::cached_kv_blocks)
      .def_readonly("cached_host_kv_blocks", &S::cached_host_kv_blocks)
      .def_readonly("total_state_slots", &S::total_state_slots)
      .def_readonly("free_state_slots", &S::free_state_slots)
      .def_readonly("cached_state_slots", &S::cached_state_slots)
      .def_readonly("cached_host_state_slots", &S::cached_host_state_slots)
      .def_readonly("finished_requests", &S::finished_requests)
      .def_readonly("preemptions", &S::preemptions)
      .def_readonly("interruptions", &S::interruptions)
      .def_readonly("steps", &S::steps)
      .def_readonly("prompt_tokens", &S::prompt_tokens)
      .def_readonly("generated_tokens", &S::generated_tokens)
      .def_readonly("prefix_hit_tokens", &S::prefix_hit_tokens)
      .def_readonly("prefix_miss_tokens", &S::prefix_miss_tokens)
      .def_readonly("prefix_host_hit_tokens", &S::prefix_host_hit_tokens)
      .def_readonly("kv_blocks_to_host", &S::kv_blocks_to_host)
      .def_readonly("kv_blocks_from_host", &S::kv_blocks_from_host)
      .def_readonly("snapshots_saved", &S::snapshots_saved)
      .def_readonly("snapshots_evicted", &S::snapshots_evicted)
      .def_readonly("snapshots_restored", &S::snapshots_restored)
      .def_readonly("prefix_unused_tokens", &S::prefix_unused_tokens)
      .def_readonly("busy_seconds", &S::busy_seconds)
      .def_readonly("mask_wait_seconds", &S::mask_wait_seconds)
      .def_readonly("memory_bytes", &S::memory_bytes)
      .def_readonly("memory_pool_bytes", &S::memory_pool_bytes)
      .def_readonly("mapped_bytes", &S::mapped_bytes)
      .def_readonly("drafted_tokens", &S::drafted_tokens)
      .def_readonly("accepted_tokens", &S::accepted_tokens)
      .def_readonly("encoded_tokens", &S::encoded_tokens)
      .def_readonly("encoder_hit_tokens", &S::encoder_hit_tokens)
      .def_readonly("encoder_cache_bytes", &S::encoder_cache_bytes)
      .def("__repr__", short_repr);
}

}  // namespace

void bind_results(py::module_& module) {
  bind_enums(module);
  bind_output(module);
  bind_model_info(module);
  bind_lora_info(module);
  bind_model_stats(module);
}

}  // namespace headrace::python
