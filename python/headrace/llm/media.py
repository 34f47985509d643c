"""Images and clips between prompts and the engine."""

from __future__ import annotations

import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

from headrace import native
from headrace.errors import UnsupportedError
from headrace.media.limits import MediaLimits
from headrace.media.requests.reader import MediaReader
from headrace.media.sources.load import MediaAccess
from headrace.options.engine_args import EngineArgs
from headrace.options.media import (
    local_media_path,
    media_domains,
    processor_cache_bytes,
    read_limits,
)
from headrace.quoting import did_you_mean, quoted

_FOR_VISION_MODELS = (
    "limit_mm_per_prompt",
    "mm_processor_kwargs",
    "media_limits",
    "allowed_local_media_path",
    "allowed_media_domains",
)


def media_access(args: EngineArgs) -> MediaAccess:
    """What addresses may reach. Raises TypeError, ValueError."""
    return MediaAccess.of(
        local_media_path(args.allowed_local_media_path), media_domains(args.allowed_media_domains)
    )


def media_limits(args: EngineArgs) -> MediaLimits:
    """What an item may come to. Raises TypeError, ValueError."""
    names = [item.name for item in fields(MediaLimits) if item.name != "max_rows"]
    for name in args.media_limits or ():
        if name not in names:
            hint = did_you_mean(name, names)
            raise ValueError(f"media_limits has no {quoted(name)}{hint}: it has {', '.join(names)}")
    values: dict[str, Any] = dict(args.media_limits or {})
    return MediaLimits(**values)


def media_reader(
    args: EngineArgs,
    access: MediaAccess,
    item_limits: MediaLimits,
    folder: Path,
    info: native.ModelInfo,
) -> MediaReader | None:
    """None: the model reads text only, or is told to.

    Raises UnsupportedError for enable_mm without a tower, MediaError for files that can't be, and
    ValueError or TypeError for mm_processor_kwargs that the model can't take.
    """
    if not info.vision:
        if args.enable_mm:
            raise UnsupportedError(
                "enable_mm=True: this model reads text only, it has no vision tower"
            )
        for name in _FOR_VISION_MODELS:
            if getattr(args, name) is not None:
                warnings.warn(f"{name} has no effect: the model reads text only", stacklevel=4)
        return None
    if args.deploy_modality == "text":
        return None
    return MediaReader.of_folder(
        folder,
        args.mm_processor_kwargs,
        limits=read_limits(args.limit_mm_per_prompt),
        item_limits=item_limits,
        access=access,
        cache_bytes=processor_cache_bytes(args.max_processor_cache),
        most_rows=info.max_model_len,
    )


def text_only(args: EngineArgs) -> str:
    """Why a model that has no reader takes no images."""
    if args.deploy_modality == "text":
        return "deploy_modality='text' leaves out images and clips"
    return "this model reads text only: it has no vision tower"
