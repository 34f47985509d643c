"""A model's own sampling values: its generation_config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.options.sampling_params import SamplingParams, is_default
from headrace.quoting import quoted
from headrace.text.model_files import read_json

_CHOSEN = ("temperature", "top_p", "top_k", "min_p")
# For chats with a model whose folder says nothing: at temperature 1, uncut, small models answer
# easy questions wrongly. docs/getting_started.md has what was measured.
_CHAT = {"temperature": 0.3, "min_p": 0.1}
_NEUTRAL = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
}


def read_generation_defaults(folder: Path) -> dict[str, Any]:
    """The sampling values of generation_config.json, do_sample and max_new_tokens; {} without it.

    Raises ValueError for a value no request could use.
    """
    config = read_json(folder / "generation_config.json")
    defaults = {name: config[name] for name in _NEUTRAL if config.get(name) is not None}
    try:
        SamplingParams(**defaults)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{folder / 'generation_config.json'}: {error}") from error
    most = config.get("max_new_tokens")
    if most is not None:
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise ValueError(
                f"{folder / 'generation_config.json'}: max_new_tokens must be an integer from 1 "
                f"on, got {quoted(most)}"
            )
        defaults["max_new_tokens"] = most
    if isinstance(config.get("do_sample"), bool):
        defaults["do_sample"] = config["do_sample"]
    return defaults


def chat_values(defaults: Mapping[str, Any]) -> dict[str, float]:
    """How `headrace chat` and the chat page sample where nobody chooses any of _CHOSEN; {}: by
    generation_config.json, which chooses some."""
    says_something = any(name in defaults for name in (*_CHOSEN, "do_sample"))
    return {} if says_something else dict(_CHAT)


def for_chat(params: SamplingParams, chosen: Mapping[str, float]) -> SamplingParams:
    """`params` with chat_values, unless a person has chosen any of _CHOSEN."""
    if any(not is_default(getattr(params, name)) for name in _CHOSEN):
        return params
    values: dict[str, Any] = dict(chosen)
    return replace(params, **values)


def sampling_values(params: SamplingParams, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The caller's value, else generation_config.json's, else the neutral one."""
    values = {}
    for name, neutral in _NEUTRAL.items():
        own = getattr(params, name)
        values[name] = defaults.get(name, neutral) if is_default(own) else own
    if defaults.get("do_sample") is False and all(is_default(getattr(params, n)) for n in _CHOSEN):
        values["temperature"] = 0.0
    return values
