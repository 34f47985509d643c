"""Bounds of what SamplingParams hold in lists and dicts. Errors name the field and the value."""

from __future__ import annotations

import math
from typing import Any

from headrace.quoting import quoted

MAX_OUTPUTS = 1 << 14  # of one prompt
MAX_INT32 = (1 << 31) - 1
MAX_FLOAT32 = 3.4028234663852886e38
MIN_FLOAT32 = 1.1754943508222875e-38  # above 0, with all digits
MAX_ENTRIES = 1024  # the engine's, of each list
MAX_STOP_CHARS = 1 << 16
MAX_BAD_WORD_CHARS = 4096


def check_texts(name: str, value: Any, max_chars: int) -> None:
    """A list of strings, with at most `max_chars` characters in all."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) for item in items):
        kind = "a string or a list of strings" if name == "stop" else "a list of strings"
        raise TypeError(f"{name} must be {kind}, got {quoted(value)}")
    check_entries(name, items)
    for item in items:
        if not item.isascii():
            _check_utf8(name, item)
    count = sum(map(len, items))
    if count > max_chars:
        raise ValueError(f"{name} must have at most {max_chars} characters in all, got {count}.")


def _check_utf8(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{name} must be text, but {quoted(text)} has a lone surrogate, which is no character"
        ) from None


def check_ids(name: str, value: Any, sequences: bool) -> None:
    """A list of token ids, or with `sequences` also of lists of them that are not empty."""
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{name} must be a list of token ids, got {quoted(value)}")
    check_entries(name, value)
    for item in value:
        ids = item if sequences and isinstance(item, (list, tuple)) and item else [item]
        check_entries(name, ids)
        for token_id in ids:
            if not isinstance(token_id, int) or isinstance(token_id, bool):
                raise TypeError(f"{name} must be a list of token ids, got {quoted(value)}")
            check_id(name, token_id)


def check_id(name: str, token_id: int) -> None:
    if not 0 <= token_id <= MAX_INT32:
        raise ValueError(f"{name} must hold ids in [0, {MAX_INT32}], got {quoted(token_id)}.")


def check_entries(name: str, value: Any) -> None:
    if len(value) > MAX_ENTRIES:
        raise ValueError(f"{name} may have at most {MAX_ENTRIES} entries, got {len(value)}.")


def checked_processor_args(args: Any) -> dict[str, Any]:
    """A copy of logits_processors_args with logit_bias as {int: float}."""
    if not isinstance(args, dict):
        raise TypeError(f"logits_processors_args must be a dict, got {type(args).__name__}")
    bias = args.get("logit_bias")
    if bias is None:
        return dict(args)
    if not isinstance(bias, dict):
        raise TypeError(f"logit_bias must be a dict, but got {type(bias).__name__}")
    check_entries("logit_bias", bias)
    return {**args, "logit_bias": {_id(key): _bias(value) for key, value in bias.items()}}


def _id(key: Any) -> int:
    try:
        token_id = int(key)
    except (TypeError, ValueError, OverflowError) as error:
        raise _wrong_bias("a key", key) from error
    if isinstance(key, bool) or (isinstance(key, float) and key != token_id):
        raise _wrong_bias("a key", key)
    check_id("logit_bias", token_id)
    return token_id


def _bias(value: Any) -> float:
    try:
        bias = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise _wrong_bias("a value", value) from error
    if not math.isfinite(bias) or abs(bias) > MAX_FLOAT32:
        raise ValueError(f"logit_bias must hold finite biases, got {quoted(value)}.")
    return bias


def _wrong_bias(what: str, value: Any) -> TypeError:
    return TypeError(
        "failed to cast logit_bias to the correct {key -> value} type, "
        f"expected {{int -> float}}: {what} is {quoted(value)}"
    )
