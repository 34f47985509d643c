"""From what the user calls a model to a local folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

_FILES = ("*.json", "*.model", "*.jinja", "*.txt")
_WEIGHTS = ("*.safetensors",)
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)


def checked_path(path: str | os.PathLike[str], name: str) -> str:
    """`path` as a str. Raises ValueError for an empty one, which would mean the current folder."""
    text = os.fspath(path)
    if not text:
        raise ValueError(f"{name} is empty: give a path, or '.' for the current folder")
    return text


def resolve_model(
    model: str | os.PathLike[str], revision: str = "master", weights: bool = True
) -> Path:
    """The local folder of a model: `model` itself, else fetched from the Hugging Face hub.

    The hub's own environment (HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE, HF_TOKEN) applies, and its
    cache is used. Only JSON, text, tokenizer, template and (with `weights`) safetensors files are
    fetched. The revision "master" stands for the repository's default branch.

    Raises ValueError for "", FileNotFoundError if there is no such folder or repository,
    ImportError if the hub would be needed and huggingface_hub isn't installed.
    """
    name = checked_path(model, "the path of the model")
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise NotADirectoryError(f"{name} is a file; pass the folder that holds config.json")
    if _looks_local(name):
        raise FileNotFoundError(f"There is no model folder {name}")
    return _fetch(name, revision, weights)


def _looks_local(name: str) -> bool:
    return not _HUB_ID.fullmatch(name) or name.startswith(".") or ".." in name


def _fetch(name: str, revision: str, weights: bool) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ImportError(
            f"There is no folder {name}, and fetching it from the Hugging Face hub needs a package "
            "that isn't installed: pip install headrace[hub]"
        ) from error
    patterns = [*_FILES, *_WEIGHTS] if weights else list(_FILES)
    branch = None if revision == "master" else revision
    try:
        return Path(snapshot_download(name, revision=branch, allow_patterns=patterns))
    except (OSError, ValueError) as error:  # what the hub's many errors derive from
        raise FileNotFoundError(
            f"{name} is neither a local folder, nor in the cache, nor a model that the hub gives "
            f"access to (HF_ENDPOINT, HF_HUB_OFFLINE and HF_TOKEN say where and how): {error}"
        ) from error
