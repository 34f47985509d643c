"""The keys of a generation config: types, defaults, and the checks of start_request."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from headrace.allspark.enums import AsStatus
from headrace.quoting import quoted

logger = logging.getLogger("headrace")

MAX_TOP_LOGPROBS = 10


class Refusal(Exception):
    """A request that is not started: the status its caller gets, and why."""

    def __init__(self, status: AsStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class GenerationFields:
    """A generation config, with the defaults of the original's engine.

    seed: None draws a fresh one (0 in the original).
    eos_token_id: None and 0 mean the model's own (102 in the original).
    """

    do_sample: bool = True
    num_beams: int = 1
    num_return_sequences: int = 1
    early_stopping: bool = True
    stop_words_ids: list[list[int]] = field(default_factory=list)
    eos_token_id: int | None = None
    seed: int | None = None
    bad_words_ids: list[list[int]] = field(default_factory=list)
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    length_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    suppress_repetition_in_generation: bool = False
    no_repeat_ngram_size: int = 0
    logprobs: bool = False
    top_logprobs: int = 0
    min_length: int = 0
    max_length: int = 20
    lora_name: str = ""
    mm_info: Any = None
    response_format: Mapping[str, Any] = field(default_factory=dict)
    vocab: Any = None
    vocab_type: Any = None
    uuid: str = ""
    enable_tensors_from_model_inference: bool = False


_BOOLS = (
    "do_sample",
    "early_stopping",
    "suppress_repetition_in_generation",
    "logprobs",
    "enable_tensors_from_model_inference",
)
_INTS = (
    "num_beams",
    "num_return_sequences",
    "top_k",
    "no_repeat_ngram_size",
    "top_logprobs",
    "min_length",
    "max_length",
)
_OPTIONAL_INTS = ("eos_token_id", "seed")
_FLOATS = (
    "temperature",
    "top_p",
    "repetition_penalty",
    "length_penalty",
    "presence_penalty",
    "frequency_penalty",
)
_SEQUENCES = ("stop_words_ids", "bad_words_ids")
_TEXTS = ("lora_name", "uuid")
_NAMES = tuple(item.name for item in fields(GenerationFields))
_warned: set[str] = set()


def read_fields(config: Mapping[str, Any]) -> GenerationFields:
    """Checks the types. None stands for the default; an unknown key is logged once and ignored.

    Raises Refusal (ALLSPARK_PARAM_ERROR).
    """
    result = GenerationFields()
    for name, value in config.items():
        if name not in _NAMES:
            _warn_unknown(str(name))
        elif value is not None:
            setattr(result, name, _converted(name, value))
    if result.length_penalty != 1.0:
        _log_once("length_penalty", "length_penalty has no effect: there is no beam search")
    return result


def _warn_unknown(name: str) -> None:
    near = difflib.get_close_matches(name, _NAMES, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    _log_once(name, f"unknown key {quoted(name)} is ignored{hint}")


def _log_once(name: str, message: str) -> None:
    if name in _warned or len(_warned) > 1000:
        return
    _warned.add(name)
    logger.warning("generation config: %s", message)


def _converted(name: str, value: Any) -> Any:
    try:
        if name in _BOOLS:
            return _truth(value)
        if name in _INTS or name in _OPTIONAL_INTS:
            return _whole(value)
        if name in _FLOATS:
            return _number(value)
        if name in _SEQUENCES:
            return [[_whole(token) for token in sequence] for sequence in value]
    except (TypeError, ValueError, AttributeError, OverflowError):
        raise _param_error(f"{name} has the wrong type: {quoted(value)}") from None
    wanted = str if name in _TEXTS else Mapping if name == "response_format" else object
    if not isinstance(value, wanted):
        raise _param_error(f"{name} has the wrong type: {quoted(value)}")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, (bool, int)):
        raise TypeError(value)
    return bool(value)


def _whole(value: Any) -> int:
    number: int = value.__index__()
    if not -(1 << 63) <= number < 1 << 64:
        raise OverflowError(value)
    return number


def _number(value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise TypeError(value)
    return float(value)


def _param_error(message: str) -> Refusal:
    return Refusal(AsStatus.ALLSPARK_PARAM_ERROR, message)


def verify(
    fields: GenerationFields, rows: list[list[int]], engine_max_length: int, engine_max_batch: int
) -> list[int]:
    """The one prompt of a request that can be served. Raises Refusal, first problem first."""
    limit, param = AsStatus.ALLSPARK_EXCEED_LIMIT_ERROR, AsStatus.ALLSPARK_PARAM_ERROR
    prompt = rows[0] if rows else []
    length = len(prompt)

    def check(bad: bool, status: AsStatus, message: str) -> None:
        if bad:
            raise Refusal(status, message)

    def check_range(name: str, low: float, high: float) -> None:
        value = getattr(fields, name)
        check(not low <= value <= high, param, f"{name} must be in [{low}, {high}], got {value}")

    check(
        fields.max_length > engine_max_length,
        limit,
        f"max_length {fields.max_length} exceeds engine_max_length {engine_max_length}",
    )
    check(
        length > engine_max_length - 2,
        limit,
        f"a prompt of {length} tokens exceeds engine_max_length - 2 = {engine_max_length - 2}",
    )
    check(length <= 0, limit, "the prompt is empty")
    check(
        length >= fields.max_length,
        limit,
        f"max_length counts the prompt, too: {fields.max_length} leaves nothing to generate behind "
        f"{length} prompt tokens",
    )
    check(fields.top_k < 0, param, f"top_k must be at least 0, got {fields.top_k}")
    check_range("top_p", 0.0, 1.0)
    check(
        len(rows) > engine_max_batch,
        limit,
        f"{len(rows)} prompts exceed engine_max_batch {engine_max_batch}",
    )
    check(len(rows) > 1, param, "a request has one prompt: start one request for each")
    if fields.logprobs:
        check_range("top_logprobs", 0, MAX_TOP_LOGPROBS)
    check_range("repetition_penalty", 0.0, 2.0)
    check_range("presence_penalty", -2.0, 2.0)
    check_range("frequency_penalty", -2.0, 2.0)
    check(
        fields.num_beams > 1 or fields.num_return_sequences > 1,
        param,
        "num_beams and num_return_sequences above 1 are not supported: start several requests",
    )
    check(
        fields.enable_tensors_from_model_inference,
        param,
        "enable_tensors_from_model_inference is not supported",
    )
    return prompt
