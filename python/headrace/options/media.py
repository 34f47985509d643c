"""What LLM is told about images and clips, checked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headrace.errors import TokenizerError
from headrace.quoting import quoted
from headrace.text.model_files import read_json

MODALITIES = ("image", "video")
DEFAULT_LIMITS = {"image": 1, "video": 1}
MOST_ITEMS = 1 << 16
# What LLM takes of addresses where the program doesn't say: for scripts that are left as they are.
LOCAL_PATH_VARIABLE = "HEADRACE_ALLOWED_LOCAL_MEDIA_PATH"
DOMAINS_VARIABLE = "HEADRACE_ALLOWED_MEDIA_DOMAINS"  # separated by commas
_DEFAULT_PROCESSOR_CACHE = 0.25  # GiB
_MOST_GIBIBYTES = 1 << 20
_MOST_WIDTH = 1 << 20
_MOST_BYTES = 1 << 62


def read_limits(limits: Any) -> dict[str, int]:
    """`limit_mm_per_prompt`, checked: {"image": 4, "video": 1}. "audio" may be there; nothing takes
    it. Raises TypeError, ValueError."""
    if limits is None:
        return dict(DEFAULT_LIMITS)
    if not isinstance(limits, Mapping):
        raise TypeError(f"limit_mm_per_prompt must be a dict, got {quoted(limits)}")
    known = {*MODALITIES, "audio"}
    for modality, most in limits.items():
        if modality not in known:
            raise ValueError(
                f"limit_mm_per_prompt has no {quoted(modality)}: it has {', '.join(sorted(known))}"
            )
        if not isinstance(most, int) or isinstance(most, bool) or not 0 <= most <= MOST_ITEMS:
            raise ValueError(
                f"limit_mm_per_prompt[{quoted(modality)}] must be an int in [0, {MOST_ITEMS}], got "
                f"{quoted(most)}"
            )
    return {**DEFAULT_LIMITS, **limits}


def check_names(argument: str, values: Any) -> None:
    """The form of `mm_processor_kwargs` and `media_limits`; what reads them decides on the names.
    Raises TypeError."""
    if values is None:
        return
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise TypeError(f"{argument} must be a dict with names, got {quoted(values)}")


def processor_cache_bytes(gibibytes: Any) -> int:
    """`max_processor_cache` in bytes; -1: the default. Raises TypeError, ValueError."""
    if not isinstance(gibibytes, (int, float)) or isinstance(gibibytes, bool):
        raise TypeError(f"max_processor_cache must be a number of GiB, got {quoted(gibibytes)}")
    if gibibytes == -1:
        gibibytes = _DEFAULT_PROCESSOR_CACHE
    if not 0 <= gibibytes <= _MOST_GIBIBYTES:
        raise ValueError(
            f"max_processor_cache must be in [0, {_MOST_GIBIBYTES}] GiB (0: off), or -1, got "
            f"{quoted(gibibytes)}"
        )
    return int(gibibytes * (1 << 30))


def encoder_cache_bytes(rows: int, folder: str) -> int:
    """`max_encoder_cache` as the engine's bytes, for the model in `folder`; 0: the engine chooses.

    A row is the language model's, in float32, once more for each layer behind which it is added.
    """
    if rows < 0:
        return 0
    try:
        config = read_json(Path(folder) / "config.json")
    except TokenizerError:  # the engine says what is wrong with it
        return 0
    text, vision = (config.get(name) for name in ("text_config", "vision_config"))
    text = text if isinstance(text, Mapping) else config
    width = text.get("hidden_size", config.get("hidden_size"))
    added = vision.get("deepstack_visual_indexes") if isinstance(vision, Mapping) else None
    if not isinstance(width, int) or not 0 < width <= _MOST_WIDTH:
        return 0
    layers = 1 + (len(added) if isinstance(added, list) else 0)
    return min(4 * rows * width * layers, _MOST_BYTES)


def local_media_path(given: Any) -> str | os.PathLike[str] | None:
    """`allowed_local_media_path`, else what the environment says. Raises TypeError."""
    if given is None:
        return os.environ.get(LOCAL_PATH_VARIABLE) or None
    if not isinstance(given, (str, os.PathLike)):
        raise TypeError(f"allowed_local_media_path must be a path, got {quoted(given)}")
    return given or None


def media_domains(given: Any) -> list[str] | None:
    """`allowed_media_domains`, else what the environment says. Raises TypeError."""
    if given is None:
        text = os.environ.get(DOMAINS_VARIABLE, "")
        return [name.strip() for name in text.split(",") if name.strip()] or None
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise TypeError(f"allowed_media_domains must be a list of names, got {quoted(given)}")
    names = list(given)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"allowed_media_domains must have names of hosts, got {quoted(name)}")
    return names
