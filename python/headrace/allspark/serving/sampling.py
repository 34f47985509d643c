"""From a generation config to the engine's sampling parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.allspark.core import engine_api
from headrace.allspark.serving.generation_fields import GenerationFields

_GREEDY_BELOW = 1e-5  # temperature
_WHOLE_TOP_P = 0.99
_MAX_SEED = (1 << 64) - 1


def sampling_values(
    fields: GenerationFields, prompt_len: int, model_eos: Sequence[int], vocab_size: int
) -> dict[str, Any]:
    """Arguments of GenerationConfig. REQUIRES: generation_fields.verify has passed."""
    room = fields.max_length - prompt_len
    values = {
        **_choice(fields),
        **_endings(fields, model_eos, vocab_size),
        "max_tokens": room,
        "min_tokens": min(max(0, fields.min_length - prompt_len), room),
        "seed": None if fields.seed is None else fields.seed & _MAX_SEED,
        "repetition_penalty": fields.repetition_penalty,
        "penalize_output_only": fields.suppress_repetition_in_generation,
        "no_repeat_ngram_size": fields.no_repeat_ngram_size,
        "presence_penalty": fields.presence_penalty,
        "frequency_penalty": fields.frequency_penalty,
        "bad_words": fields.bad_words_ids,
    }
    if fields.logprobs:
        values["logprobs"] = fields.top_logprobs
        values["logprobs_kind"] = engine_api.LogprobsKind.PENALIZED_LOGPROBS
    return values


def _choice(fields: GenerationFields) -> dict[str, Any]:
    """Greedy below a temperature or without do_sample; a top_p of 1 is 0.99, as in the original."""
    if fields.temperature < _GREEDY_BELOW or not fields.do_sample:
        return {"temperature": 0.0, "top_k": 1, "top_p": 1.0}
    top_p = _WHOLE_TOP_P if abs(fields.top_p - 1.0) < _GREEDY_BELOW else fields.top_p
    return {"temperature": fields.temperature, "top_k": fields.top_k, "top_p": top_p}


def _endings(fields: GenerationFields, model_eos: Sequence[int], vocab_size: int) -> dict[str, Any]:
    """EOS ends a request if early_stopping is set; stop words always do."""
    eos = set(model_eos)
    if fields.eos_token_id and 0 < fields.eos_token_id < vocab_size:
        eos.add(fields.eos_token_id)
    return {
        "ignore_eos": True,
        "stop_token_ids": sorted(eos) if fields.early_stopping else [],
        "stop_sequences_anywhere": True,
        "stop_sequences": [word for word in fields.stop_words_ids if word],
    }
