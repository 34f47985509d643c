"""From a caller's SamplingParams to the engine's: defaults, gates, text to ids."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace import native
from headrace.errors import EngineError, UnsupportedError
from headrace.options.engine_args import EngineArgs
from headrace.options.generation_defaults import sampling_values
from headrace.options.sampling_params import MAX_SEED, SamplingParams, is_default
from headrace.parsers.output_plan import Parsing
from headrace.quoting import quoted
from headrace.text.tokenizer import Tokenizer


def check_shared(params: SamplingParams, args: EngineArgs, vocab_size: int) -> None:
    """What holds for every prompt alike. Raises ValueError."""
    for name in params.logits_processors_args or ():
        if name != "logit_bias":
            raise UnsupportedError(
                f"logits_processors_args: {quoted(name)} is not available; this version has "
                "'logit_bias'"
            )
    if params.logprobs is not None:
        _check_logprobs("logprobs", params.logprobs, args, vocab_size)
    if params.prompt_logprobs is not None:
        _check_logprobs("prompt_logprobs", params.prompt_logprobs, args, vocab_size)


def _check_logprobs(name: str, wanted: int, args: EngineArgs, vocab_size: int) -> None:
    allowed = vocab_size if args.max_logprobs == -1 else args.max_logprobs
    if allowed > vocab_size:
        raise ValueError(f"max_logprobs ({allowed}) exceeds vocabulary size ({vocab_size}).")
    if not args.enable_logprob:
        raise ValueError(
            f"{name} is only supported if `enable_logprob` is set to true in startup config."
        )
    if wanted == -1 and vocab_size > allowed:
        raise ValueError(
            f"Number of {name}(-1) requested ({vocab_size}) exceeds maximum allowed value "
            f"({allowed})."
        )
    if wanted > allowed:
        raise ValueError(
            f"Number of {name} requested ({wanted}) exceeds maximum allowed value ({allowed})."
        )


@dataclass(slots=True)
class RequestPlanner:
    """Makes the engine's parameters for the requests of one LLM."""

    args: EngineArgs
    defaults: Mapping[str, Any]
    tokenizer: Tokenizer | None
    info: native.ModelInfo
    parsing: Parsing
    seeds: random.Random | None  # LLM(seed=...)'s, of seeds for requests without one

    def plan(
        self, params: SamplingParams, prompt_len: int, bad_words: Sequence[str]
    ) -> list[native.GenerationConfig]:
        """One for each of the n outputs. Raises ValueError, EngineError."""
        self._check_lengths(params, prompt_len)
        values = {
            **sampling_values(params, self.defaults),
            **self._endings(params, prompt_len),
            "logit_bias": list((params.logits_processors_args or {}).get("logit_bias", {}).items()),
            "bad_words": self._banned(params, bad_words),
            "logprobs": self._count(params.logprobs),
            "prompt_logprobs": self._count(params.prompt_logprobs),
            "logprobs_kind": native.LogprobsKind[self.args.logprobs_mode.upper()],
            "temperature_scaled_logprobs": params.temp_scaled_logprobs,
            "top_p_normalized_logprobs": params.top_p_normalized_logprobs,
        }
        seed = self._seed(params)
        return [
            native.GenerationConfig(**values, seed=(seed + i) % (MAX_SEED + 1))
            for i in range(params.n)
        ]

    def _check_lengths(self, params: SamplingParams, prompt_len: int) -> None:
        limit = self.info.max_model_len
        if prompt_len == 0:
            raise ValueError(
                "Invalid input: prompt_token_ids must be a non-empty sequence of token IDs"
            )
        if prompt_len > limit:
            raise EngineError(
                f"Length of input token({prompt_len}) exceeds the limit max_model_len({limit})."
            )
        least = max(1, params.min_tokens)
        if prompt_len + least > limit:
            raise EngineError(
                f"Input text is too long, length of prompt token({prompt_len}) + min_dec_len "
                f"({least}) > max_model_len({limit})"
            )

    def shortened(self, params: SamplingParams, ids: list[int]) -> list[int]:
        """A prompt as truncate_prompt_tokens has it. Raises ValueError."""
        most, limit = params.truncate_prompt_tokens, self.info.max_model_len
        if most is None:
            return ids
        if most > limit:
            raise ValueError(
                f"truncate_prompt_tokens ({most}) exceeds max_model_len ({limit}): at most so many "
                "tokens fit"
            )
        if most < 0:
            most = max(1, limit - max(1, params.min_tokens, params.max_tokens or 0))
        return ids[-most:]

    def end_tokens(self, params: SamplingParams) -> frozenset[int]:
        """The single ids that end an output: the model's, unless ignored, and the caller's."""
        model_ends = () if params.ignore_eos else (*self.info.eos_token_ids, *self._own_end())
        return frozenset(model_ends) | frozenset(stop_tokens(params)[0])

    def _own_end(self) -> list[int]:
        """The tokenizer may name an end token that the model's configuration doesn't."""
        eos = None if self.tokenizer is None else self.tokenizer.eos_token_id
        return [] if eos is None or eos in self.info.eos_token_ids else [eos]

    def _endings(self, params: SamplingParams, prompt_len: int) -> dict[str, Any]:
        room = self.info.max_model_len - prompt_len
        tokens, sequences = stop_tokens(params)
        most = params.max_tokens
        if most is None:
            most = max(self.defaults.get("max_new_tokens", room), params.min_tokens)
        return {
            "max_tokens": min(most, room),
            "min_tokens": params.min_tokens,
            "ignore_eos": params.ignore_eos,
            "stop_token_ids": tokens if params.ignore_eos else [*tokens, *self._own_end()],
            "stop_sequences": sequences,
        }

    def _banned(self, params: SamplingParams, bad_words: Sequence[str]) -> list[list[int]]:
        """Each word as it is tokenized at the start of a text and after a space."""
        banned: set[tuple[int, ...]] = {
            (token_id,) for token_id in params.bad_words_token_ids or ()
        }
        if params.allowed_token_ids is not None:  # a grammar alone lets outputs end
            ends = frozenset((*self.info.eos_token_ids, *self._own_end()))
            banned |= {(token_id,) for token_id in ends - set(params.allowed_token_ids)}
        for word in [*(params.bad_words or ()), *bad_words]:
            if self.tokenizer is None:
                raise ValueError("bad_words need a tokenizer, and the model folder has none")
            bare = word.lstrip()
            for text in (bare, " " + bare) if bare else (word,):
                banned.add(tuple(self.tokenizer.encode(text)))
        return [list(ids) for ids in sorted(banned) if ids]

    def _count(self, logprobs: int | None) -> int | None:
        size: int = self.info.vocab_size
        return size if logprobs == -1 else logprobs

    def _seed(self, params: SamplingParams) -> int:
        if params.seed is not None and (self.seeds is None or not is_default(params.seed)):
            return params.seed
        return (
            random.randint(0, MAX_SEED) if self.seeds is None else self.seeds.randint(0, MAX_SEED)
        )


def stop_tokens(params: SamplingParams) -> tuple[list[int], list[list[int]]]:
    """params.stop_token_ids as single ids and longer sequences."""
    tokens: list[int] = []
    sequences: list[list[int]] = []
    for item in params.stop_token_ids or ():
        if isinstance(item, int):
            tokens.append(item)
        elif len(item) == 1:
            tokens.append(item[0])
        else:
            sequences.append(list(item))
    return tokens, sequences
