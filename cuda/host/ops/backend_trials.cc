// Which kernels this GPU is trusted with: what is replaced, and what is refused.

#include <string>

#include "base/check.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/host/trials/exchange_trial.h"
#include "cuda/host/trials/kernel_trials.h"

namespace headrace::cuda {

namespace {

constexpr const char* kSameResults = "those by mma.sync run, with the same results";
constexpr const char* kPlainAttention = "plain kernels run, slower";

}  // namespace

TrialRecord CudaBackend::trial_record(const std::string& trials) const {
  const DeviceProperties& gpu = context_.properties();
  return {trials_folder_,
          str_cat(trials, " have passed their trials.\n", context_.api().build(), "\n", gpu.name,
                  " ", gpu.uuid, has_wgmma_ ? "\n" : " without wgmma\n")};
}

bool CudaBackend::fails(const char* kernels, const std::string& why, const char* instead) {
  if (!why.empty()) replaced_kernels_.push_back(str_cat(kernels, " (", why, "): ", instead));
  return !why.empty();
}

void CudaBackend::note_refused(const char* kernels, const std::string& why, std::string& refused) {
  if (fails(kernels, why, "what needs them is refused")) refused = str_cat(kernels, " (", why, ")");
}

void CudaBackend::try_kernels() {
  const TrialRecord record = trial_record("All CUDA kernels");
  if (record.passed()) return;
  if (has_wgmma_ &&
      fails("linears by wgmma", try_wgmma_linears(context_, cuda::linear), kSameResults)) {
    has_wgmma_ = false;
  }
  if (codes_by_wgmma_ &&
      fails("FP8 linears by wgmma", try_wgmma_codes(context_, cuda::quant_linear),
            "those by mma.sync run, slower, with sums in another order")) {
    codes_by_wgmma_ = false;
  }
  if (quant_by_wgmma_ &&
      fails("int4 and int8 linears by wgmma", try_wgmma_quant_linears(context_, cuda::quant_linear),
            kSameResults)) {
    quant_by_wgmma_ = false;
  }
  if (attends_by_wgmma_ &&
      fails("attention by wgmma", try_attention(context_, cuda::attention, true), kSameResults)) {
    attends_by_wgmma_ = false;
  }
  if (!attends_by_wgmma_) {
    attends_plainly_ = fails("attention by tensor cores",
                             try_attention(context_, cuda::attention, false), kPlainAttention);
  }
  attends_codes_plainly_ =
      attends_plainly_ || fails("attention over quantized KV caches",
                                try_code_attention(context_, cuda::attention), kPlainAttention);
  samples_on_host_ =
      fails("sampling", try_sampling(context_, cuda::sample), "the host draws, slower");
  try_needed_kernels();
  norms_round_ = !fails("norms that round rows", try_rounding_norms(context_, cuda::rms_norm),
                        "rows are rounded apart, with the same results");
  if (replaced_kernels_.empty()) record.keep();
}

void CudaBackend::try_needed_kernels() {
  note_refused("linears by mma.sync", try_linears(context_, cuda::linear), refused_.linears);
  note_refused("linears of int4 and int8 weights", try_quant_linears(context_, cuda::quant_linear),
               refused_.quant);
  note_refused("linears of FP8 and int8 weights and rows",
               try_rounded_linears(context_, cuda::quant_linear), refused_.rounded);
  note_refused("products of experts", try_experts(context_, cuda::grouped_linear),
               refused_.experts);
  note_refused("products of FP8 and int8 experts and rows",
               try_rounded_experts(context_, cuda::grouped_linear), refused_.rounded_experts);
  note_refused("RMS norms", try_norms(context_, cuda::rms_norm), refused_.norms);
  note_refused("writes to KV caches of 16 bits", try_half_writes(context_, cuda::rope_kv_write),
               refused_.half_writes);
  note_refused("rows of tokens", try_copies(context_, {}), refused_.copies);
  note_refused("writes to quantized KV caches", try_code_writes(context_, cuda::rope_kv_write),
               refused_.code_writes);
}

void CudaBackend::try_heads(const AttentionHeads& heads) {
  if (kv_has_scales(heads.cache)) {
    attends_codes_plainly_ =
        attends_codes_plainly_ ||
        fails("attention over quantized KV caches",
              cuda::try_heads(context_, cuda::attention, false, heads), kPlainAttention);
    return;
  }
  const bool by_wgmma = attends_by_wgmma_ && wgmma_can_attend(heads.kind(1.0f));
  if (by_wgmma) {
    attends_by_wgmma_ =
        !fails("attention by wgmma", cuda::try_heads(context_, cuda::attention, true, heads),
               kSameResults);
  }
  if ((by_wgmma && attends_by_wgmma_) || attends_plainly_) return;
  attends_plainly_ =
      fails("attention by tensor cores", cuda::try_heads(context_, cuda::attention, false, heads),
            kPlainAttention);
  attends_by_wgmma_ = attends_by_wgmma_ && !attends_plainly_;
}

void CudaBackend::try_model_kernels(const BackendNeeds& needs) {
  const auto once = [&](const std::string& kernels, auto&& trial) {
    if (!tried_.insert(kernels).second) return;
    const TrialRecord record = trial_record(kernels);
    if (record.passed()) return;
    const size_t failures = replaced_kernels_.size();
    trial();
    if (replaced_kernels_.size() == failures) record.keep();
  };
  for (const int32_t head_dim : {needs.head_dim, needs.other_head_dim}) {
    if (head_dim == 0) continue;
    const AttentionHeads heads{needs.storage, needs.kv_dtype, head_dim, needs.block_size,
                               needs.latent};
    const std::string name = str_cat(heads.latent ? "latent rows of " : "heads of ", heads.head_dim,
                                     " in ", dtype_name(heads.dtype), " over blocks of ",
                                     heads.block_size, " in ", dtype_name(heads.cache));
    if (mma_can_attend(heads.kind(1.0f))) {
      once(str_cat("Attention by ", name, attends_by_wgmma_ ? "" : ", not by wgmma"),
           [&] { try_heads(heads); });
    } else if (heads.dtype != DType::kF32 && heads.dtype == heads.cache) {
      once(str_cat("Plain attention by ", name), [&] {
        note_refused("plain attention", try_plain_heads(context_, cuda::attention, heads),
                     refused_.attention);
      });
    }
  }
  if (needs.storage == DType::kF32) return;
  const char* const dtype = dtype_name(needs.storage);
  if (needs.experts > 0) {
    once("Choices of experts",
         [&] { note_refused("choices of experts", try_choices(context_, {}), refused_.choices); });
  }
  if (needs.adapters) {
    once(str_cat("Adapters in ", dtype), [&] {
      note_refused("adapters", try_lora(context_, cuda::lora, needs.storage), refused_.lora);
    });
  }
  if (needs.tower_head_dim > 0) {
    once(str_cat("Towers in ", dtype, " with heads of ", needs.tower_head_dim), [&] {
      note_refused("vision towers", try_towers(context_, {}, needs.storage, needs.tower_head_dim),
                   refused_.towers);
    });
  }
}

// By all ranks, or by none: one that fails in between tells the others.
void CudaBackend::try_exchanges() {
  const TrialRecord record =
      trial_record(str_cat("Exchanges in ", dtype_name(storage_),
                           rank_->is_carried() ? " by NCCL" : "", " between ", rank_->gpus()));
  if (rank_->agree(record.passed() ? "" : "they are new").empty()) return;
  ExchangeVerdict verdict;
  try {
    verdict = prove_exchanges(context_, *rank_, {}, storage_);
  } catch (const OtherRankFailed&) {
    throw;
  } catch (const Error& error) {
    if (context_.lost()) throw;
    verdict.refused = str_cat("exchanges between GPUs (", error.what(), ")");
  }
  refuse(verdict.refused);
  if (verdict.replaced.empty()) return record.keep();
  if (rank_->rank() == 0) {
    replaced_kernels_.push_back(str_cat(verdict.replaced, ": NCCL brings the parts, slower"));
  }
}

void CudaBackend::refuse(const std::string& kernels) const {
  if (kernels.empty()) return;
  int driver = 0;
  static_cast<void>(context_.api().driver_version(&driver));
  throw_error(ErrorCode::kUnsupported, "cuda:", context_.device(), " (", context_.properties().name,
              ", driver of CUDA ", driver / 1000, ".", driver % 1000 / 10,
              ") fails the trial of kernels that the model needs: ", kernels,
              "; use device cpu, or install another driver.");
}

// In float32 everything has kernels of its own, which are plain.
void CudaBackend::refuse_model(const BackendNeeds& needs) const {
  if (needs.storage == DType::kF32) return;
  refuse(refused_.linears);
  refuse(refused_.norms);
  refuse(refused_.half_writes);
  refuse(refused_.copies);
  refuse(refused_.attention);
  if (needs.experts > 0) refuse(refused_.choices);
  if (needs.adapters) refuse(refused_.lora);
  if (needs.vision) refuse(refused_.towers);
}

void CudaBackend::refuse_weight(const QuantFormat& quant, DType storage, int32_t experts) const {
  if (rounds_rows(quant)) {
    refuse(refused_.rounded);
    if (experts > 1) refuse(refused_.rounded_experts);
  }
  if (storage == DType::kF32) return;
  if (quant.bits != 0 && !rounds_rows(quant)) refuse(refused_.quant);
  if (experts > 1 && !rounds_rows(quant)) refuse(refused_.experts);
}

}  // namespace headrace::cuda
