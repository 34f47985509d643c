"""What `speculative_config=` may say, in the engine's terms."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from typing import Any

from headrace.errors import UnsupportedError
from headrace.quoting import checked_text, quoted

_SIZES = ("num_speculative_tokens", "min_ngram_size", "max_ngram_size")
# FastDeploy's settings of other methods, and of checks that give up exactness: the values that
# mean what is done here.
_ONLY: Mapping[str, tuple[Any, ...]] = {
    "verify_strategy": (None, "target_match", 2),
    "accept_policy": (None, "normal"),
    "num_model_steps": (None, 1),
    "mtp_strategy": (None, "default"),
    "quantization": (None,),
}


def engine_speculative(value: Any) -> dict[str, Any]:
    """Fields of the engine's SpeculativeOptions; none if `value` is None.

    `value` is a dict (or its JSON) in FastDeploy's shape: {"method": "ngram",
    "num_speculative_tokens": 8, "min_ngram_size": 2, "max_ngram_size": 5}, all but the method
    optional, {"method": "draft_model", "model": folder}, or {"method": "mtp"}, with the folder of
    the MTP block's tensors as "model" if they aren't in the model's own. Raises ValueError,
    TypeError or UnsupportedError.
    """
    if value is None:
        return {}
    settings = _settings(value)
    known = ("method", "model", *_SIZES, *_ONLY)
    for key in settings:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
            raise ValueError(f"speculative_config: unknown key {quoted(key)}{hint}")
    method = settings.get("method")
    if method not in ("ngram", "draft_model", "mtp"):
        raise UnsupportedError(
            f"speculative_config: method {quoted(method)} is not supported; use 'ngram', which "
            "needs no second model, 'draft_model' or 'mtp', or leave speculative_config out"
        )
    for key, allowed in _ONLY.items():
        if key == "num_model_steps" and method == "mtp":  # the block makes one guess a step
            allowed = (*allowed, settings.get("num_speculative_tokens"))
        if settings.get(key) not in allowed:
            shown = quoted(settings[key])
            raise UnsupportedError(
                f"speculative_config: {key}={shown} is not supported; leave it out: "
                "guesses are kept exactly when they are what the model draws"
            )
    out: dict[str, Any] = {"method": method, **_model(method, settings.get("model"))}
    for key in _SIZES:
        if (size := settings.get(key)) is None:
            continue
        if not isinstance(size, int) or isinstance(size, bool):
            raise TypeError(f"speculative_config: {key} must be an int, got {quoted(size)}")
        out[key] = size
    _check_sizes(out)
    return out


def _model(method: str, model: Any) -> dict[str, str]:
    if method == "ngram":
        if model is not None:
            raise ValueError(f"speculative_config: 'ngram' has no model, got model={quoted(model)}")
        return {}
    if method == "mtp" and model is None:
        return {}
    if not isinstance(model, (str, os.PathLike)):
        what = (
            "'mtp': model must be the folder of the MTP block's tensors, or left out"
            if method == "mtp"
            else "'draft_model' needs model, the folder of a small model with the same tokenizer"
        )
        raise TypeError(f"speculative_config: {what}, got {quoted(model)}")
    return {"model": checked_text(os.fspath(model), "speculative_config: model")}


def _check_sizes(sizes: Mapping[str, Any]) -> None:
    count = sizes.get("num_speculative_tokens", 8)
    if not 1 <= count <= 32:
        raise ValueError(
            f"speculative_config: num_speculative_tokens must be in [1, 32], got {quoted(count)}"
        )
    least, most = sizes.get("min_ngram_size", 2), sizes.get("max_ngram_size", 5)
    if not 1 <= most <= 64:
        raise ValueError(f"speculative_config: max_ngram_size must be in [1, 64], got {most}")
    if not 1 <= least <= most:
        raise ValueError(
            f"speculative_config: min_ngram_size must be in [1, {most}] (max_ngram_size), got "
            f"{least}"
        )


def _settings(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"speculative_config={quoted(value)} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise TypeError(f"speculative_config must be a dict, got {type(value).__name__}")
    return value
