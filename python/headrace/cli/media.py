"""Options about images and clips, and what is made of the files that they name."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.cli.usage import UsageError

MEDIA_LIMITS = (
    "allowed_local_media_path",
    "allowed_media_domains",
    "max_encoder_tokens",
    "max_encoder_cache",
    "max_processor_cache",
)
_JSON = ("limit_mm_per_prompt", "mm_processor_kwargs", "media_limits")
_ADDRESS = re.compile(r"(data:|file:|https?:)", re.IGNORECASE)


def add_media_limits(parser: argparse.ArgumentParser) -> None:
    """What LLM is told of images and clips."""
    group = parser.add_argument_group("images and clips (docs/media.md)")
    group.add_argument(
        "--limit-mm-per-prompt", metavar="JSON", help='most of a prompt, as {"image": 4}'
    )
    group.add_argument(
        "--mm-processor-kwargs", metavar="JSON", help='how they are read, as {"video_fps": 1}'
    )
    group.add_argument(
        "--media-limits",
        metavar="JSON",
        help='most of an item, as {"max_pixels": 4000000} (docs/media.md has the names)',
    )
    group.add_argument(
        "--allowed-local-media-path", metavar="FOLDER", help="of what file:// addresses may name"
    )
    group.add_argument(
        "--allowed-media-domains",
        action="append",
        metavar="HOST",
        help="that http(s):// addresses may name; repeatable",
    )
    group.add_argument(
        "--max-encoder-tokens", type=int, metavar="N", help="encoded between two steps"
    )
    group.add_argument("--max-encoder-cache", type=int, metavar="N", help="encoded rows kept")
    group.add_argument(
        "--max-processor-cache", type=float, metavar="GIB", help="of processed ones kept"
    )


def add_media_files(parser: argparse.ArgumentParser) -> None:
    """What a prompt shows the model."""
    for kind in ("image", "video"):
        parser.add_argument(
            f"--{kind}",
            action="append",
            default=[],
            metavar="FILE",
            help=f"show the model this {kind}, a file or an address; repeatable",
        )


def json_options(args: argparse.Namespace) -> dict[str, Any]:
    """LLM's arguments that are given as JSON. Raises UsageError."""
    found = {}
    for name in _JSON:
        text = getattr(args, name)
        if text is None:
            continue
        try:
            found[name] = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"--{name.replace('_', '-')} is not JSON: {error}") from error
    return found


def media_part(kind: str, name: str) -> dict[str, Any]:
    """A content part of what a person names: an address, or a file. Raises UsageError."""
    if _ADDRESS.match(name):
        return {"type": kind, kind: name}
    file = Path(name).expanduser()
    if not file.is_file():
        raise UsageError(f"there is no file {name}")
    return {"type": kind, kind: file}


def media_parts(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Of --image and --video. Raises UsageError."""
    return [media_part(kind, name) for kind in ("image", "video") for name in getattr(args, kind)]


def multimodal_data(parts: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """The same for `generate`."""
    return {
        kind: [part[kind] for part in parts if part["type"] == kind] for kind in ("image", "video")
    }


def media_counts(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """LLM's limit that admits them, if its default doesn't."""
    counts = {kind: len(items) for kind, items in multimodal_data(parts).items()}
    if max(counts.values(), default=0) <= 1:
        return {}
    return {"limit_mm_per_prompt": {kind: max(count, 1) for kind, count in counts.items()}}
