"""How the tokens of one request are chosen, and when it ends."""

from __future__ import annotations

import copy
import math
import operator
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, fields
from typing import Any

from headrace.options.guided_decoding import (
    REQUEST_NAMES,
    GuidedDecodingParams,
    StructuredOutputsParams,
)
from headrace.options.output_kind import RequestOutputKind
from headrace.options.param_checks import (
    MAX_BAD_WORD_CHARS,
    MAX_FLOAT32,
    MAX_INT32,
    MAX_OUTPUTS,
    MAX_STOP_CHARS,
    MIN_FLOAT32,
    check_ids,
    check_texts,
    checked_processor_args,
)
from headrace.quoting import did_you_mean, quoted

__all__ = [
    "BeamSearchParams",
    "GuidedDecodingParams",
    "RequestOutputKind",
    "SamplingParams",
    "StructuredOutputsParams",
]

MAX_SEED = 922337203685477580
MAX_BEAMS = 256
MAX_LENGTH_PENALTY = 10.0
_FLAGS = (
    "temp_scaled_logprobs",
    "top_p_normalized_logprobs",
    "include_stop_str_in_output",
    "ignore_eos",
    "skip_special_tokens",
)
_INTS = (
    "n",
    "best_of",
    "top_k",
    "seed",
    "stop_seqs_len",
    "max_tokens",
    "reasoning_max_tokens",
    "response_max_tokens",
    "min_tokens",
    "logprobs",
    "prompt_logprobs",
    "truncate_prompt_tokens",
)


# What other engines' fields are here.
_SAME = {"structured_outputs": "guided_decoding"}
_INSTEAD = {
    "use_beam_search": ": LLM.beam_search(prompts, BeamSearchParams(...)) searches",
    "logit_bias": ": logits_processors_args={'logit_bias': {token id: bias}} has biases",
    "logits_processors": ": no Python code runs between steps",
    "detokenize": ": texts are always made",
}


class _DefaultInt(int):
    """A default that the caller didn't choose: generation_config.json may replace it."""


class _DefaultFloat(float):
    """The same for a float."""


def is_default(value: object) -> bool:
    """Whether a field still holds the default, rather than an equal value the caller gave."""
    return value is None or isinstance(value, (_DefaultInt, _DefaultFloat))


def default_int(value: int) -> int:
    """A value that the caller didn't choose: see is_default."""
    return _DefaultInt(value)


@dataclass
class SamplingParams:
    """Fields left at their default take the value of the model's generation_config.json, else a
    neutral one: temperature 1, top_p 1, top_k off, no penalties. A `do_sample: false` there means
    greedy decoding, unless temperature, top_p, top_k or min_p is given. Values are checked here
    (10.0 is taken for 10, and numpy's numbers for Python's); the object is never changed by a call.
    What has no effect warns.

    n: outputs per prompt, at most 16384. A call returns n RequestOutputs in a row for the prompt,
        with `outputs.index` 0 .. n-1; with a seed, output i is drawn with seed + i.
    best_of: no effect; nothing is chosen among the n outputs.
    presence_penalty, frequency_penalty: in [-2, 2]; subtracted for tokens already generated, once
        or once per occurrence.
    repetition_penalty: > 0; scales down (> 1) tokens that occurred in prompt or output.
    temperature: >= 0; 0 is greedy.
    top_p: in [0, 1]; the smallest set of tokens whose probability reaches it. 0 is greedy.
    top_k: the k most likely tokens; 0 or -1: all.
    min_p: in [0, 1]; drops tokens less likely than min_p times the most likely one.
    seed: makes the draws repeatable; None: each prompt draws its own, from LLM(seed=...) if that is
        given, and `outputs.seed` tells it.
    stop: strings that end the output, of at most 65536 characters in all. They are found in the
        text, also across token borders. Text and token_ids end before the string: token_ids with
        the last token that lies wholly before it.
    stop_token_ids: tokens that end the output; like the end-of-sequence token, such a token is the
        last of token_ids and not in the text. A list of lists is accepted too: a sequence of
        several ids ends the output when it has been generated, and stays in token_ids and text.
    include_stop_str_in_output: keep the stop string (or stop token) in text and token_ids.
    ignore_eos: go on after end-of-sequence tokens.
    stop_seqs_len: no effect.
    max_tokens: generated tokens, at most; None: as many as the context leaves. Clamped so that
        prompt and output fit max_model_len.
    min_tokens: before this many, end-of-sequence and stop tokens can't be generated and stop
        strings don't count.
    reasoning_max_tokens: tokens of thinking, at most; after so many the model has to end it. Needs
        LLM(reasoning_parser=...).
    response_max_tokens: tokens after the thinking, at most, >= 1.
    logprobs: log-probabilities of this many best tokens (and of the chosen one) per position; -1:
        of the whole vocabulary. Needs LLM(enable_logprob=True).
    prompt_logprobs: the same for the prompt. Such a request doesn't read the prefix cache.
    temp_scaled_logprobs: raw log-probabilities after division by the temperature.
    top_p_normalized_logprobs: raw log-probabilities renormalised over the top_p set.
    bad_words: words never generated, at the start of a text or after a space. Of a word of several
        tokens the last is banned after the others.
    bad_words_token_ids: tokens never generated.
    allowed_token_ids: these tokens alone are generated, end-of-sequence only if it is among them.
    truncate_prompt_tokens: of a longer prompt, only its last so many tokens are read; -1: so many
        that max_tokens (or one token) fit behind them.
    guided_decoding: see GuidedDecodingParams. structured_outputs: vLLM's name for it, when the
        object is made and to assign to; guided_decoding has what was given.
    logits_processors_args: {"logit_bias": {token id: bias}}; biases are added to the logits.
    skip_special_tokens: leave special tokens out of the text.
    output_kind: what each update of a stream has, a RequestOutputKind. None: what is new, or from
        vLLM's engines (LLMEngine, AsyncLLMEngine) everything so far.
    """

    n: int = 1
    best_of: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int = _DefaultInt(0)
    min_p: float = _DefaultFloat(0.0)
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | list[list[int]] | None = None
    stop_seqs_len: int | None = None
    max_tokens: int | None = None
    reasoning_max_tokens: int | None = None
    response_max_tokens: int | None = None
    min_tokens: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    temp_scaled_logprobs: bool = False
    top_p_normalized_logprobs: bool = False
    bad_words: list[str] | None = None
    guided_decoding: GuidedDecodingParams | None = None
    bad_words_token_ids: list[int] | None = None
    logits_processors_args: dict[str, Any] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    allowed_token_ids: list[int] | None = None
    truncate_prompt_tokens: int | None = None
    output_kind: RequestOutputKind | None = None
    structured_outputs: InitVar[GuidedDecodingParams | None] = None

    def __new__(cls, *_args: Any, **kwargs: Any) -> SamplingParams:
        """Raises TypeError for an unknown name, with what to write instead."""
        for name in kwargs:
            if name not in cls.__dataclass_fields__:
                hint = _INSTEAD.get(name) or did_you_mean(name, cls.__dataclass_fields__)
                raise TypeError(
                    f"SamplingParams() got an unexpected keyword argument {quoted(name)}{hint}"
                )
        return super().__new__(cls)

    def __post_init__(self, structured_outputs: GuidedDecodingParams | None) -> None:
        if structured_outputs is not None:
            if self.guided_decoding is not None:
                raise ValueError("guided_decoding and structured_outputs are the same: give one")
            self.guided_decoding = structured_outputs
        for name in _INTS:
            setattr(self, name, as_int(getattr(self, name)))
        self._verify_args()
        self._warn_unused()

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dataclass_fields__:
            hint = _INSTEAD.get(name) or did_you_mean(name, self.__dataclass_fields__)
            raise AttributeError(f"SamplingParams has no field {quoted(name)}{hint}")
        object.__setattr__(self, _SAME.get(name, name), value)

    def clone(self) -> SamplingParams:
        """A copy that shares nothing with this one."""
        return copy.deepcopy(self)

    def _verify_args(self) -> None:
        self._check_numbers()
        self._check_lengths()
        self._check_logprobs()
        self._check_lists()
        self._check_flags()
        if self.reasoning_max_tokens is not None and self.max_tokens is not None:
            self.reasoning_max_tokens = min(self.reasoning_max_tokens, self.max_tokens)

    def _warn_unused(self) -> None:
        reasons = {
            "best_of": "all n outputs are returned, and none is chosen",
            "stop_seqs_len": "lengths of stop sequences are counted here",
        }
        for name, reason in reasons.items():
            value = getattr(self, name)
            if value is None or (name == "best_of" and value == self.n):
                continue
            # The frames between are this one, __post_init__ and __init__.
            warnings.warn(f"{name}={quoted(value)} has no effect: {reason}", stacklevel=4)

    @classmethod
    def from_dict(cls, req_dict: Mapping[str, Any]) -> SamplingParams:
        """From the keys that are fields; others are ignored, missing ones have their default.

        Instead of guided_decoding there may be guided_json, guided_regex, guided_choice,
        guided_grammar, guided_json_object or structural_tag.
        """
        values = {f.name: req_dict[f.name] for f in fields(cls) if f.name in req_dict}
        if values.get("guided_decoding") is None:
            values["guided_decoding"] = GuidedDecodingParams.from_names(req_dict)
        return cls(**values)

    @classmethod
    def from_generic_request(cls, req: Any) -> SamplingParams:
        """From the attributes (or keys, of a mapping) that are fields and not None.

        As in requests to OpenAI: max_completion_tokens goes before max_tokens, and where there is a
        top_logprobs, logprobs says whether it counts.
        """

        def read(name: str) -> Any:
            return req.get(name) if isinstance(req, Mapping) else getattr(req, name, None)

        names = [*(f.name for f in fields(cls)), *REQUEST_NAMES.values()]
        values = {name: read(name) for name in names}
        values["max_tokens"] = read("max_completion_tokens") or values["max_tokens"]
        if "top_logprobs" in req if isinstance(req, Mapping) else hasattr(req, "top_logprobs"):
            values["logprobs"] = read("top_logprobs") if values["logprobs"] else None
        return cls.from_dict({name: v for name, v in values.items() if v is not None})

    @classmethod
    def from_optional(
        cls,
        n: int | None = None,
        best_of: int | None = None,
        presence_penalty: float | None = None,
        frequency_penalty: float | None = None,
        repetition_penalty: float | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        min_p: float | None = None,
        seed: int | None = None,
        stop: str | list[str] | None = None,
        stop_token_ids: list[int] | list[list[int]] | None = None,
        max_tokens: int | None = None,
        reasoning_max_tokens: int | None = None,
        response_max_tokens: int | None = None,
        min_tokens: int | None = None,
        logprobs: int | None = None,
        prompt_logprobs: int | None = None,
        bad_words: list[str] | None = None,
        guided_decoding: GuidedDecodingParams | None = None,
        bad_words_token_ids: list[int] | None = None,
        logits_processors_args: dict[str, Any] | None = None,
        **others: Any,
    ) -> SamplingParams:
        """None means a neutral value here, not the model's own default; max_tokens is 8192.

        The order is FastDeploy's; `others` are further fields by name.
        """
        neutral = {
            "n": 1,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "max_tokens": 8192,
        }
        given = {
            "n": n,
            "best_of": best_of,
            "presence_penalty": presence_penalty,
            "frequency_penalty": frequency_penalty,
            "repetition_penalty": repetition_penalty,
            "temperature": temperature,
            "top_p": top_p,
            "top_k": top_k,
            "min_p": min_p,
            "seed": seed,
            "stop": stop,
            "stop_token_ids": stop_token_ids,
            "max_tokens": max_tokens,
            "reasoning_max_tokens": reasoning_max_tokens,
            "response_max_tokens": response_max_tokens,
            "min_tokens": min_tokens,
            "logprobs": logprobs,
            "prompt_logprobs": prompt_logprobs,
            "bad_words": bad_words,
            "guided_decoding": guided_decoding,
            "bad_words_token_ids": bad_words_token_ids,
            "logits_processors_args": logits_processors_args,
            **others,
        }
        return cls(**neutral | {name: v for name, v in given.items() if v is not None})

    def stop_strings(self) -> list[str]:
        """`stop` as a list."""
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else list(self.stop)

    def _check_numbers(self) -> None:
        if not isinstance(self.n, int):
            raise ValueError(f"n must be an int, but is of type {type(self.n)}")
        if self.n < 1:
            raise ValueError(f"n must be at least 1, got {quoted(self.n)}.")
        self._check_int("n", 1, f"at most {MAX_OUTPUTS}", MAX_OUTPUTS)
        self._check_int("best_of", 1, f"in [1, {MAX_OUTPUTS}]", MAX_OUTPUTS)
        self._check_range("presence_penalty", -2, 2, "in [-2, 2]")
        self._check_range("frequency_penalty", -2, 2, "in [-2, 2]")
        self._check_positive("repetition_penalty", MIN_FLOAT32, "greater than zero")
        self._check_positive("temperature", 0, "non-negative")
        self._check_range("top_p", 0, 1, "in [0, 1]")
        self._check_top_k()
        self._check_range("min_p", 0, 1, "in [0, 1]")
        self._check_int("seed", 0, f"in [0, {MAX_SEED}]", MAX_SEED)

    def _check_top_k(self) -> None:
        if isinstance(self.top_k, (int, float)) and self.top_k < -1:
            raise ValueError(f"top_k must be 0 (disable), or at least 1, got {quoted(self.top_k)}.")
        if not isinstance(self.top_k, int):
            raise TypeError(f"top_k must be an integer, got {type(self.top_k).__name__}")
        self._check_int("top_k", -1, f"at most {MAX_INT32}", MAX_INT32)

    def _check_lengths(self) -> None:
        self._check_int("max_tokens", 1, "at least 1")
        self._check_int("response_max_tokens", 1, "at least 1")
        self._check_int("truncate_prompt_tokens", -1, "at least 1, or -1")
        if self.truncate_prompt_tokens == 0:
            raise ValueError("truncate_prompt_tokens must be at least 1, or -1, got 0.")
        for name in ("reasoning_max_tokens", "min_tokens"):
            self._check_int(name, 0, "greater than or equal to 0")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError(
                f"min_tokens must be less than or equal to max_tokens={quoted(self.max_tokens)}, "
                f"got {quoted(self.min_tokens)}."
            )

    def _check_logprobs(self) -> None:
        for name in ("logprobs", "prompt_logprobs"):
            self._check_int(name, -1, "a non-negative value or -1")
            self._check_int(name, -1, f"at most {MAX_INT32}", MAX_INT32)

    def _check_lists(self) -> None:
        if self.stop is not None:
            check_texts("stop", self.stop, MAX_STOP_CHARS)
        if "" in self.stop_strings():
            raise ValueError("stop must not contain an empty string.")
        if self.bad_words is not None:
            words = list(self.bad_words) if isinstance(self.bad_words, tuple) else self.bad_words
            if isinstance(words, str):
                raise TypeError(f"bad_words must be a list of strings, got {quoted(words)}")
            check_texts("bad_words", words, MAX_BAD_WORD_CHARS)
        if self.bad_words_token_ids is not None:
            check_ids("bad_words_token_ids", self.bad_words_token_ids, sequences=False)
        if self.allowed_token_ids is not None:
            check_ids("allowed_token_ids", self.allowed_token_ids, sequences=False)
            self._check_allowed(self.allowed_token_ids)
        if self.stop_token_ids is not None:
            check_ids("stop_token_ids", self.stop_token_ids, sequences=True)
        guided = self.guided_decoding
        if guided is not None and not isinstance(guided, GuidedDecodingParams):
            raise TypeError(
                f"guided_decoding must be a GuidedDecodingParams, got {type(guided).__name__}"
            )
        if self.logits_processors_args is not None:
            self.logits_processors_args = checked_processor_args(self.logits_processors_args)

    def _check_allowed(self, ids: Sequence[int]) -> None:
        if not ids:
            raise ValueError("allowed_token_ids must not be empty.")
        if self.guided_decoding is not None:
            raise ValueError("allowed_token_ids and guided_decoding exclude each other.")

    def _check_flags(self) -> None:
        for name in _FLAGS:
            value = getattr(self, name)
            if not isinstance(value, int) or value not in (0, 1):
                raise TypeError(f"{name} must be a bool, got {quoted(value)}")
        if not isinstance(self.output_kind, RequestOutputKind | None):
            raise TypeError(
                f"output_kind must be a RequestOutputKind, got {quoted(self.output_kind)}"
            )

    def _check_range(self, name: str, low: float, high: float, range_text: str) -> None:
        value = getattr(self, name)
        if value is None:
            return
        if not isinstance(value, (int, float)):
            raise TypeError(f"{name} must be a number, got {type(value).__name__}")
        if not low <= value <= high:
            raise ValueError(f"{name} must be {range_text}, got {quoted(value)}.")

    def _check_positive(self, name: str, low: float, range_text: str) -> None:
        self._check_range(name, low, math.inf, range_text)
        value = getattr(self, name)
        if value == math.inf:
            raise ValueError(f"{name} must be {range_text}, got inf.")
        self._check_range(name, low, MAX_FLOAT32, f"at most {MAX_FLOAT32:.2g}")

    def _check_int(self, name: str, low: int, range_text: str, high: int = (1 << 63) - 1) -> None:
        value = getattr(self, name)
        if value is None and name != "min_tokens":
            return
        if not isinstance(value, int):
            raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
        if low <= value and value >= 1 << 63:
            range_text = "less than 2**63"
        if not low <= value <= high:
            raise ValueError(f"{name} must be {range_text}, got {quoted(value)}.")


@dataclass
class BeamSearchParams:
    """How LLM.beam_search looks for the most likely outputs. Raises TypeError and ValueError.

    beam_width: how many outputs are kept after each token, and returned in the end.
    max_tokens: tokens of an output, at most.
    ignore_eos: go on after end-of-sequence tokens.
    temperature: the log-probabilities that are added up are those without it, as in vLLM; above 0,
        a token that is drawn with it goes beside the most likely ones.
    length_penalty: an output's score is its log-probabilities' sum, divided by the number of tokens
        of prompt and output, without an end-of-sequence token, to this power.
    include_stop_str_in_output: keep an end-of-sequence token's text.
    """

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0
    include_stop_str_in_output: bool = False

    def __post_init__(self) -> None:
        for name, most in (("beam_width", MAX_BEAMS), ("max_tokens", MAX_INT32)):
            value = as_int(getattr(self, name))
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name} must be an int, got {quoted(value)}")
            if not 1 <= value <= most:
                raise ValueError(f"{name} must be in [1, {most}], got {quoted(value)}")
            setattr(self, name, value)
        for name, least, limit in (
            ("temperature", 0.0, MAX_FLOAT32),
            ("length_penalty", -MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY),
        ):
            number = getattr(self, name)
            if not isinstance(number, (int, float)):
                raise TypeError(f"{name} must be a number, got {quoted(number)}")
            if not least <= number <= limit:
                raise ValueError(f"{name} must be in [{least}, {limit:.2g}], got {quoted(number)}")
        for name in ("ignore_eos", "include_stop_str_in_output"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be a bool, got {quoted(getattr(self, name))}")


def as_int(value: Any) -> Any:
    """10.0 and numpy's integers as int; the checks judge anything else."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) or not hasattr(value, "__index__"):
        return value
    return operator.index(value)
