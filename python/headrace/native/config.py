"""How the tokens of one request are chosen, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from headrace import _core
from headrace.short_repr import given_fields, short_repr


@dataclass(slots=True, frozen=True, kw_only=True)
class GenerationConfig:
    """The engine's sampling parameters (headrace/sampling_params.h), and how text is made of ids.

    Neutral by default: the model's generation_config.json isn't read. `Engine.submit` checks the
    values and raises InvalidArgumentError, a ValueError, that names the field and its range. To
    change some of them: `dataclasses.replace(config, seed=1)`.

    temperature: >= 0; 0 is greedy. top_p in [0, 1]; top_k: 0 or -1: all; min_p in [0, 1].
    seed: draws depend on it and on the index of the token alone; None: a fresh one.
    repetition_penalty: > 0, over prompt and output, or the output with penalize_output_only.
    frequency_penalty, presence_penalty: in [-2, 2], over the output.
    no_repeat_ngram_size: no sequence of that many ids comes twice; 0: off.
    logit_bias: (id, bias) pairs, added to the logits.
    bad_words: sequences of ids that are never generated.
    max_tokens: generated tokens; 0: as many as the context leaves. min_tokens: before this many
        the output can't end.
    ignore_eos: go on after the model's end-of-sequence tokens.
    stop_token_ids: ids that end the output and are the last of it; not part of the text.
    stop_sequences: sequences of ids that end the output; stop_sequences_anywhere: also before
        min_tokens and across the end of the prompt.
    logprobs, prompt_logprobs: log-probabilities of this many best tokens per position; None: none.
    logprobs_kind, temperature_scaled_logprobs, top_p_normalized_logprobs: which ones.
    skip_special_tokens: leave special tokens out of the text.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalize_output_only: bool = False
    no_repeat_ngram_size: int = 0
    logit_bias: Sequence[tuple[int, float]] = ()
    bad_words: Sequence[Sequence[int]] = ()
    max_tokens: int = 0
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: Sequence[int] = ()
    stop_sequences: Sequence[Sequence[int]] = ()
    stop_sequences_anywhere: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprobs_kind: _core.LogprobsKind = _core.LogprobsKind.RAW_LOGPROBS
    temperature_scaled_logprobs: bool = False
    top_p_normalized_logprobs: bool = False
    skip_special_tokens: bool = True

    def __repr__(self) -> str:
        """With the fields that aren't neutral."""
        return short_repr(self, given_fields(self))

    def to_core(self) -> _core.SamplingParams:
        """Raises TypeError for a value of the wrong type."""
        values: dict[str, Any] = {name: getattr(self, name) for name in _ENGINE_FIELDS}
        return _core.SamplingParams(**values)


_TEXT_FIELDS = frozenset({"skip_special_tokens"})
_ENGINE_FIELDS = tuple(f.name for f in fields(GenerationConfig) if f.name not in _TEXT_FIELDS)
