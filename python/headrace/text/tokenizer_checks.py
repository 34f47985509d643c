"""What a tokenizer.json may not hold, because the package that runs it would take all memory or end
the process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.errors import TokenizerError
from headrace.quoting import quoted

MAX_GROWTH = 64  # of a text by its normalizers, or of a token by its decoders
_SUBWORD_PREFIX = re.compile(rb'"continuing_subword_prefix"\s*:\s*"[^"]')


def check_subword_prefix(path: Path, text: bytes) -> None:
    """The package ends the process over a BPE model whose merges lack its own subword prefix."""
    if not _SUBWORD_PREFIX.search(text):
        return
    try:
        model = json.loads(text)["model"]
        prefix = model["continuing_subword_prefix"]
        if model.get("type", "BPE") != "BPE" or not prefix:
            return
        pairs = [merge.split(" ", 1) if isinstance(merge, str) else merge
                 for merge in model["merges"]]  # fmt: skip
        fits = all(second.startswith(prefix) for _, second in pairs)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise TokenizerError(f"{path} is not a valid tokenizer.json: {quoted(error)}") from error
    if not fits:
        raise TokenizerError(
            f"{path} is not a valid tokenizer.json: its merges do not carry its "
            f"continuing_subword_prefix {quoted(prefix)}"
        )


def check_template(path: Path, spec: Any) -> None:
    """The package panics over a template of special tokens that it does not define.

    `spec`: of the post-processor as the package writes it; None: there is none.
    """
    for step in _steps(spec):
        if step.get("type") != "TemplateProcessing":
            continue
        for piece in (*step["single"], *step["pair"]):
            token = piece.get("SpecialToken", {}).get("id")
            if token is not None and token not in step["special_tokens"]:
                raise TokenizerError(
                    f"{path}: its post_processor does not define the special token {quoted(token)}"
                )


def check_growth(path: Path, part: str, spec: Any) -> None:
    """Replacements may not blow a text up: 20 that double it make a megabyte of each character.

    `spec`: of the part ("normalizer", "decoder") as the package writes it; None: there is none.
    """
    growth = 1.0
    for step in _steps(spec):
        growth *= _growth(step)
        if growth > MAX_GROWTH:
            raise TokenizerError(
                f"{path}: its {part} makes a text more than {MAX_GROWTH} times longer"
            )


def _steps(spec: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(spec, dict):
        return
    names = ("normalizers", "decoders", "processors")
    inner = [spec[name] for name in names if isinstance(spec.get(name), list)]
    if not inner:
        yield spec
    for item in (item for items in inner for item in items):
        yield from _steps(item)


def _growth(step: dict[str, Any]) -> float:
    kind = step.get("type")
    if kind == "Replace":
        pattern = step.get("pattern")
        plain = pattern.get("String") if isinstance(pattern, dict) else None
        length = len(str(step.get("content", "")))
        # An expression may match nothing, between any two characters.
        return max(1.0, length / len(plain)) if plain else 1.0 + length
    if kind == "Prepend":  # to a text; counted as if it were to each character
        return 1.0 + len(str(step.get("prepend", "")))
    return 1.0
